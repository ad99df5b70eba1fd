package imapd

import (
	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/service/core"
)

// quotaRoot is the name of the only quota root of a mailbox: all of its folders.
const quotaRoot = "mailbox"

// getQuota answers GETQUOTA (RFC 9208 section 4.1.1).
func (ss *session) getQuota(tag string, p *commandEditor) error {
	root, ok := p.value(2)
	if !ok || len(p.tokens) != 3 {
		return badCommand("GETQUOTA takes the name of a quota root")
	}
	q, err := ss.server.Service.Core.MailboxQuota(ss.conn.ctx, ss.user)
	if err != nil {
		return err
	}
	if root != quotaRoot {
		return refusal(imap.ResponseCodeNonExistent, "There is no such quota root")
	}
	ss.writeQuota(q)
	ss.conn.writeReply("%s OK GETQUOTA completed", tag)
	return nil
}

// getQuotaRoot answers GETQUOTAROOT (RFC 9208 section 4.1.2). Every folder has the same root.
func (ss *session) getQuotaRoot(tag string, p *commandEditor) error {
	given, ok := p.value(2)
	if !ok || len(p.tokens) != 3 {
		return badCommand("GETQUOTAROOT takes the name of a folder")
	}
	name, ok := decodeName(given)
	if !ok {
		return refusal(imap.ResponseCodeNonExistent, "The name of the folder cannot be read")
	}
	if _, err := ss.server.Service.Inbox.FolderByName(ss.conn.ctx, ss.user, name); err != nil {
		return err
	}
	q, err := ss.server.Service.Core.MailboxQuota(ss.conn.ctx, ss.user)
	if err != nil {
		return err
	}
	if ss.quotesUTF8() {
		given = name
	}
	ss.conn.writeReply("* QUOTAROOT %s %s", quoted(given), quotaRoot)
	ss.writeQuota(q)
	ss.conn.writeReply("%s OK GETQUOTAROOT completed", tag)
	return nil
}

// writeQuota writes storage in units of 1 024 bytes (RFC 9208 section 5.1). Without a limit the
// list is empty (section 4.2.1).
func (ss *session) writeQuota(q core.Quota) {
	if q.Limit == nil {
		ss.conn.writeReply("* QUOTA %s ()", quotaRoot)
		return
	}
	ss.conn.writeReply("* QUOTA %s (STORAGE %d %d)", quotaRoot, (q.Used+1023)/1024, *q.Limit/1024)
}
