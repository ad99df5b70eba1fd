package pull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"
)

// capGmail is a capability that only Gmail has. Gmail's SMTP server itself stores the mail that it
// sends in the folder of sent mail.
const capGmail = imap.Cap("X-GM-EXT-1")

// sentNames are common names of the folder of sent mail. They are for servers that do not mark that
// folder (RFC 6154).
var sentNames = []string{"sent", "sent items", "sent messages", "sent mail"}

// StoresSentMail reports whether the server stores a copy of mail that is sent through its SMTP
// server.
func (s *Session) StoresSentMail() bool { return s.caps.Has(capGmail) }

// SentFolder returns the name of the folder of sent mail: the one that the server marks as \Sent,
// otherwise one with a common name. It returns "" if there is neither.
func (s *Session) SentFolder(ctx context.Context) (name string, err error) {
	var folders []*imap.ListData
	err = s.runShort(ctx, func() (err error) {
		o := &imap.ListOptions{ReturnSpecialUse: s.caps.Has(imap.CapSpecialUse) && s.caps.Has(imap.CapListExtended)}
		folders, err = s.client.List("", "*", o).Collect()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("list folders: %w", err)
	}
	for _, f := range folders {
		if slices.Contains(f.Attrs, imap.MailboxAttrSent) {
			return f.Mailbox, nil
		}
	}
	best := len(sentNames)
	for _, f := range folders {
		if i := slices.Index(sentNames, bareFolderName(f)); i >= 0 && i < best && !slices.Contains(f.Attrs, imap.MailboxAttrNoSelect) {
			best, name = i, f.Mailbox
		}
	}
	return name, nil
}

// bareFolderName returns the name of a folder in lower case, without the prefix INBOX that some
// servers put before the names of all folders.
func bareFolderName(f *imap.ListData) string {
	name := strings.ToLower(f.Mailbox)
	if f.Delim != 0 {
		name = strings.TrimPrefix(name, "inbox"+string(f.Delim))
	}
	return name
}

// Holds reports whether a folder has a message with the Message-ID. Afterwards that folder is
// selected.
func (s *Session) Holds(ctx context.Context, folder, messageID string) (bool, error) {
	held := false
	err := s.runShort(ctx, func() error {
		if _, err := s.client.Select(folder, &imap.SelectOptions{ReadOnly: true}).Wait(); err != nil {
			return err
		}
		found, err := s.client.UIDSearch(&imap.SearchCriteria{Header: []imap.SearchCriteriaHeaderField{{Key: "Message-ID", Value: messageID}}}, nil).Wait()
		if err != nil {
			return err
		}
		set, _ := found.All.(imap.UIDSet)
		held = len(set) > 0
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look for a message in %q: %w", folder, err)
	}
	return held, nil
}

// Append adds a message to a folder (RFC 9051 section 6.3.12). size is the length of the message in
// bytes, and at is its INTERNALDATE. seen marks it as read.
func (s *Session) Append(ctx context.Context, folder string, seen bool, at time.Time, size int64, message io.Reader) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeouts.Bulk, ErrStalled) // the server could stop reading without a reply
	defer cancel()
	o := &imap.AppendOptions{Time: at}
	if seen {
		o.Flags = []imap.Flag{imap.FlagSeen}
	}
	err := s.runCommand(ctx, bounds{bytes: smallResponse, time: s.timeouts.Bulk}, func() error {
		cmd := s.client.Append(folder, size, o)
		_, written := io.Copy(cmd, message)
		closed := cmd.Close()
		_, err := cmd.Wait()
		if e := new(imap.Error); errors.As(err, &e) {
			return err // the server refused the message; the other errors result from that
		}
		return errors.Join(written, closed, err)
	})
	if err != nil {
		return fmt.Errorf("append to %q: %w", folder, err)
	}
	return nil
}
