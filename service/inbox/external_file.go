package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/mail/pull"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// A fetched is one message that was fetched and is to be filed.
type fetched struct {
	row      pull.Row
	received time.Time
	stored   *StoredMessage
}

// file fetches messages and files them with their new Seen in one transaction, and says how many it
// filed; arrived says that they are news. Those that the server does not give any more are passed
// over.
func (v *syncRun) file(ctx context.Context, uids []uint32, arrived bool) (filed int, err error) {
	messages, err := v.fetch(ctx, uids)
	defer func() {
		for _, c := range messages {
			v.s.Release(c.stored) // does nothing for what was filed
		}
	}()
	if err != nil {
		return 0, err
	}
	slices.SortFunc(messages, func(a, b fetched) int { return int(int64(a.row.UID) - int64(b.row.UID)) })
	box := *v.box
	err = v.update(func(tx *store.Tx, mb *store.Mailbox) error {
		filed, box = 0, *v.box
		if err := v.checkQuota(tx, mb, messages); err != nil {
			return err
		}
		for _, c := range messages {
			done, err := v.fileOne(tx, mb, c, arrived)
			if err != nil {
				return err
			}
			if done {
				filed++
			}
		}
		if arrived {
			box.Seen = max(box.Seen, slices.Max(uids))
		}
		return store.RemoteBoxes.Put(tx, &box)
	})
	if err != nil {
		return 0, err
	}
	v.box = &box
	return filed, nil
}

// checkQuota refuses what would not fit under the mailbox's quota.
func (v *syncRun) checkQuota(tx *store.Tx, mb *store.Mailbox, messages []fetched) error {
	left, err := QuotaLeft(tx, mb)
	if err != nil || left < 0 {
		return err
	}
	for _, c := range messages {
		left -= int64(c.stored.Blob.Length)
	}
	if left < 0 {
		return core.Errorf(CodeQuota, "%s is full: its quota_bytes is %d. Raise it, or delete mail.", mb.Email, *mb.QuotaBytes)
	}
	return nil
}

// fileOne files a message that is not stored yet.
func (v *syncRun) fileOne(tx *store.Tx, mb *store.Mailbox, c fetched, arrived bool) (bool, error) {
	_, err := tx.Message(mb.Num, store.InboxID, c.row.UID)
	if err == nil || !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	flags, keywords := remoteFlags(c.row.Flags)
	_, err = v.s.File(tx, mb, c.stored, Filing{
		Folder: store.InboxID, UID: c.row.UID, Received: c.received, Flags: flags, keywords: keywords, Arrived: arrived,
	})
	return err == nil, err
}

// fetch gives the messages, stored. What it gives is to be released, with an error too.
func (v *syncRun) fetch(ctx context.Context, uids []uint32) (out []fetched, err error) {
	var long []pull.Message // without their content
	err = v.session.Fetch(ctx, uids, func(m pull.Message) error {
		if m.More || m.Size > core.MaxMessage {
			m.Content = nil
			long = append(long, m)
			return nil
		}
		if len(m.Content) == 0 {
			return nil
		}
		spool := v.s.Store.NewSpool(core.MaxMessage)
		defer spool.Close()
		if _, err := spool.Write(m.Content); err != nil {
			return err
		}
		c, err := v.prepare(m, spool)
		if err == nil {
			out = append(out, c)
		}
		return err
	})
	for _, m := range long {
		if err != nil {
			break
		}
		var c fetched
		if c, err = v.fetchLong(ctx, m); err == nil && c.stored != nil {
			out = append(out, c)
		}
	}
	return out, err
}

// prepare reads a message that is in a spool.
func (v *syncRun) prepare(m pull.Message, spool *store.Spool) (fetched, error) {
	c := fetched{row: m.Row, received: m.Received}
	if now := v.s.Now(); c.received.IsZero() || c.received.After(now) {
		c.received = now
	}
	var err error
	c.stored, err = v.s.Prepare(spool, Envelope{To: []string{v.mb.Email}, Received: c.received})
	if err != nil {
		return fetched{}, fmt.Errorf("message %d of %s: %w", m.UID, v.mb.Email, err)
	}
	return c, nil
}

// fetchLong fetches a message piece by piece; of one that is longer than any message here only the
// header. One that is gone is not stored.
func (v *syncRun) fetchLong(ctx context.Context, m pull.Message) (fetched, error) {
	spool := v.s.Store.NewSpool(core.MaxMessage)
	defer func() { _ = spool.Close() }()
	if m.Size <= core.MaxMessage {
		n, err := v.session.Content(ctx, m.UID, spool)
		switch {
		case err == nil && n == 0:
			return fetched{}, nil
		case err == nil:
			return v.prepare(m, spool)
		case !errors.Is(err, store.ErrTooLarge):
			return fetched{}, err
		}
	}
	_ = spool.Close()
	spool = v.s.Store.NewSpool(core.MaxMessage)
	if n, err := v.session.Header(ctx, m.UID, spool); err != nil || n == 0 {
		return fetched{}, err
	}
	stub, err := v.stub(m, spool)
	if err != nil {
		return fetched{}, err
	}
	defer stub.Close()
	return v.prepare(m, stub)
}

// stub is what stands here for a message that is too long: its header, and where the rest is. The
// caller closes it.
func (v *syncRun) stub(m pull.Message, header *store.Spool) (*store.Spool, error) {
	root, err := msg.Scan(header.Reader())
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	fields, err := msg.HeaderFields(header, root, []string{"Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "MIME-Version"}, true)
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	fields = bytes.TrimSuffix(fields, []byte("\r\n")) // the empty line
	out := v.s.Store.NewSpool(core.MaxMessage)
	_, err = fmt.Fprintf(out, "%sMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"+
		"This message has %d bytes, more than the %d that are fetched. It can be read on %s.\r\n", fields, m.Size, core.MaxMessage, v.mb.External.IMAP.Host)
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	return out, nil
}
