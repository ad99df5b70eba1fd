package imapd

// checkTaintedClose returns an error if the log-in is tainted and a CLOSE would delete messages.
func (ss *session) checkTaintedClose() error {
	tainted := ss.server.Service.Inbox.CheckUntainted(ss.user)
	if tainted == nil {
		return nil
	}
	n, _, err := ss.server.Service.Inbox.CountDeleted(ss.ctx, ss.user, ss.selected.folder)
	if err == nil && n > 0 {
		err = tainted
	}
	return err
}

// taintByFetch taints the log-in if a FETCH asks for content of the messages, not only for flags,
// dates, sizes and IDs.
func (ss *session) taintByFetch(uids []uint32, asksContent bool) error {
	if !ss.user.Policy.Taint || !asksContent {
		return nil
	}
	return ss.server.Service.Inbox.ReadMessages(ss.ctx, ss.user, ss.selected.folder, uids)
}

// taintBySearch taints the log-in if the result of a SEARCH, SORT or THREAD depends on the content
// of messages.
func (ss *session) taintBySearch(uids []uint32, usesContent bool) error {
	if !ss.user.Policy.Taint || !usesContent {
		return nil
	}
	return ss.server.Service.Inbox.ReadFolder(ss.ctx, ss.user, ss.selected.folder, uids)
}
