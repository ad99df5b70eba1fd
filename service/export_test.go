package service

// What tests outside of the package use.

const (
	FeedBatch      = feedBatch
	FeedGather     = feedDelay
	FeedPause      = feedPause
	FeedQueue      = feedQueue
	FeedRest       = feedLongPause
	FeedsOfAccount = feedsOfAccount
	FeedsOfUser    = feedsOfUser
	PruneLook      = pruneRows
)

type (
	Feeds = feeds
)

var (
	NewFeeds = newFeeds
)
