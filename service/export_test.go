package service

// What tests outside of the package look at.

const (
	FeedBatch      = feedBatch
	FeedGather     = feedGather
	FeedPause      = feedPause
	FeedQueue      = feedQueue
	FeedRest       = feedRest
	FeedsOfAccount = feedsOfAccount
	FeedsOfUser    = feedsOfUser
	PruneLook      = pruneLook
)

type (
	Feeds = feeds
)

var (
	NewFeeds = newFeeds
)
