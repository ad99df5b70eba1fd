package imapd

import (
	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/core"
)

// quotaRoot is the name of the only quota root of a mailbox. It counts all folders.
const quotaRoot = "mailbox"

// getQuota answers GETQUOTA (RFC 9208 section 4.1.1).
func (ss *session) getQuota(p *wire.Command) error {
	p.Space()
	root := p.AString()
	if err := p.End(); err != nil {
		return err
	}
	q, err := ss.server.Service.Core.MailboxQuota(ss.ctx, ss.user)
	if err != nil {
		return err
	}
	if root != quotaRoot {
		return wire.No(imap.ResponseCodeNonExistent, "There is no such quota root")
	}
	ss.writeQuota(q)
	return nil
}

// getQuotaRoot answers GETQUOTAROOT (RFC 9208 section 4.1.2).
func (ss *session) getQuotaRoot(p *wire.Command) error {
	p.Space()
	name := p.Folder()
	if err := p.End(); err != nil {
		return err
	}
	if _, err := ss.server.Service.Inbox.FolderByName(ss.ctx, ss.user, name); err != nil {
		return err
	}
	q, err := ss.server.Service.Core.MailboxQuota(ss.ctx, ss.user)
	if err != nil {
		return err
	}
	folder := ss.conn.Folder(name)
	if folder == "INBOX" {
		folder = wire.Quote(folder) // clients may compare it with the quoted name that they sent
	}
	ss.conn.WriteLine("* QUOTAROOT %s %s", folder, quotaRoot)
	ss.writeQuota(q)
	return nil
}

// writeQuota writes a QUOTA answer, with storage in units of 1024 bytes (RFC 9208 section 5.1). If
// the mailbox has no limit, the list is empty (section 4.2.1).
func (ss *session) writeQuota(q core.Quota) {
	if q.Limit == nil {
		ss.conn.WriteLine("* QUOTA %s ()", quotaRoot)
		return
	}
	ss.conn.WriteLine("* QUOTA %s (STORAGE %d %d)", quotaRoot, (q.Used+1023)/1024, *q.Limit/1024)
}
