package pull

import (
	"context"
	"fmt"
	"slices"

	"github.com/emersion/go-imap/v2"
)

// A FlagChange says which flags to set (true), to clear (false) or to leave unchanged (nil).
type FlagChange struct{ Seen, Answered, Flagged *bool }

// IsSatisfiedBy reports whether the flags f are as the change wants them.
func (c FlagChange) IsSatisfiedBy(f Flags) bool {
	is := func(want *bool, have bool) bool { return want == nil || *want == have }
	return is(c.Seen, f.Seen) && is(c.Answered, f.Answered) && is(c.Flagged, f.Flagged)
}

// flags returns the flags that the change sets, or those that it clears if set is false.
func (c FlagChange) flags(set bool) (out []imap.Flag) {
	for _, f := range []struct {
		want *bool
		flag imap.Flag
	}{{c.Seen, imap.FlagSeen}, {c.Answered, imap.FlagAnswered}, {c.Flagged, imap.FlagFlagged}} {
		if f.want != nil && *f.want == set {
			out = append(out, f.flag)
		}
	}
	return out
}

// ChangeFlags changes the flags of messages and returns the new rows of those that still exist. By
// these rows, FlagChange.IsSatisfiedBy tells whether the server made the change.
func (s *Session) ChangeFlags(ctx context.Context, uids []uint32, c FlagChange) ([]Row, error) {
	for op, flags := range map[imap.StoreFlagsOp][]imap.Flag{imap.StoreFlagsAdd: c.flags(true), imap.StoreFlagsDel: c.flags(false)} {
		if len(flags) == 0 {
			continue
		}
		if err := s.storeFlags(ctx, uids, op, flags...); err != nil {
			return nil, fmt.Errorf("change flags of %d messages: %w", len(uids), err)
		}
	}
	rows, err := s.fetchRows(ctx, uids)
	if err != nil {
		return nil, fmt.Errorf("read flags of %d messages: %w", len(uids), err)
	}
	return rows, nil
}

// Delete deletes messages permanently. left are the UIDs of those that still exist afterwards.
func (s *Session) Delete(ctx context.Context, uids []uint32) (left []uint32, err error) {
	if err := s.storeFlags(ctx, uids, imap.StoreFlagsAdd, imap.FlagDeleted); err != nil {
		return nil, fmt.Errorf("mark %d messages as deleted: %w", len(uids), err)
	}
	if s.caps.Has(imap.CapUIDPlus) || s.caps.Has(imap.CapIMAP4rev2) {
		err = s.runShort(ctx, func() error { return s.client.UIDExpunge(uidSet(uids)).Close() })
	} else {
		err = s.expungeWithoutUID(ctx, uids)
	}
	if err != nil {
		return nil, fmt.Errorf("delete %d messages: %w", len(uids), err)
	}
	rows, err := s.fetchRows(ctx, uids)
	if err != nil {
		return nil, fmt.Errorf("look for %d deleted messages: %w", len(uids), err)
	}
	for _, r := range rows {
		left = append(left, r.UID)
	}
	return left, nil
}

// expungeWithoutUID deletes messages on a server without UID EXPUNGE (RFC 4315), where EXPUNGE
// deletes all messages with the \Deleted flag. While EXPUNGE runs, other messages do not have that
// flag: expungeWithoutUID removes it before and sets it again afterwards.
func (s *Session) expungeWithoutUID(ctx context.Context, uids []uint32) error {
	var others []uint32
	err := s.runShort(ctx, func() error {
		found, err := s.client.UIDSearch(&imap.SearchCriteria{Flag: []imap.Flag{imap.FlagDeleted}}, nil).Wait()
		if err != nil {
			return err
		}
		set, _ := found.All.(imap.UIDSet)
		others, err = uidsExcept(set, uids)
		return err
	})
	if err != nil {
		return err
	}
	for part := range slices.Chunk(others, 500) {
		if err := s.storeFlags(ctx, part, imap.StoreFlagsDel, imap.FlagDeleted); err != nil {
			return err
		}
	}
	if err := s.runShort(ctx, func() error { return s.client.Expunge().Close() }); err != nil {
		return err
	}
	for part := range slices.Chunk(others, 500) {
		if err := s.storeFlags(ctx, part, imap.StoreFlagsAdd, imap.FlagDeleted); err != nil {
			return err
		}
	}
	return nil
}

// maxOtherDeleted is the maximum number of other messages marked as deleted that expungeWithoutUID
// can protect.
const maxOtherDeleted = 50_000

// uidsExcept returns the UIDs of set that are not in uids.
func uidsExcept(set imap.UIDSet, uids []uint32) ([]uint32, error) {
	var out []uint32
	for _, r := range set {
		if r.Start == 0 || r.Stop < r.Start || int64(r.Stop)-int64(r.Start) > int64(maxOtherDeleted-len(out)) {
			return nil, fmt.Errorf("%w: too many messages are marked for deletion", ErrRefused)
		}
		for uid := int64(r.Start); uid <= int64(r.Stop); uid++ {
			if !slices.Contains(uids, uint32(uid)) {
				out = append(out, uint32(uid))
			}
		}
	}
	return out, nil
}

// storeFlags adds or removes flags of messages.
func (s *Session) storeFlags(ctx context.Context, uids []uint32, op imap.StoreFlagsOp, flags ...imap.Flag) error {
	return s.runShort(ctx, func() error {
		return s.client.Store(uidSet(uids), &imap.StoreFlags{Op: op, Silent: true, Flags: flags}, nil).Close()
	})
}

// fetchRows returns the rows of those messages that exist.
func (s *Session) fetchRows(ctx context.Context, uids []uint32) (rows []Row, err error) {
	err = s.runShort(ctx, func() error {
		cmd := s.client.Fetch(uidSet(uids), &imap.FetchOptions{UID: true, Flags: true})
		for m := cmd.Next(); m != nil; m = cmd.Next() {
			rows = append(rows, readRow(m))
		}
		return cmd.Close()
	})
	return rows, err
}
