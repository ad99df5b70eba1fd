package pull

import (
	"context"
	"fmt"
	"slices"

	"github.com/emersion/go-imap/v2"
)

// Mark sets or clears \Seen, and gives the message's row as the server has it then; found is false for one that is gone.
func (s *Session) Mark(ctx context.Context, uid uint32, seen bool) (row Row, found bool, err error) {
	op := imap.StoreFlagsDel
	if seen {
		op = imap.StoreFlagsAdd
	}
	if err := s.store(ctx, []uint32{uid}, op, imap.FlagSeen); err != nil {
		return Row{}, false, fmt.Errorf("mark message %d: %w", uid, err)
	}
	rows, err := s.rows(ctx, []uint32{uid})
	if err != nil {
		return Row{}, false, fmt.Errorf("mark message %d: %w", uid, err)
	}
	if len(rows) == 0 {
		return Row{}, false, nil
	}
	if rows[0].Flags.Seen != seen {
		return Row{}, false, fmt.Errorf("mark message %d: %w: the server did not change it", uid, ErrRefused)
	}
	return rows[0], true, nil
}

// Delete deletes messages for good and says which of them the server still has. Those that were gone are not among them.
func (s *Session) Delete(ctx context.Context, uids []uint32) (left []uint32, err error) {
	if err := s.store(ctx, uids, imap.StoreFlagsAdd, imap.FlagDeleted); err != nil {
		return nil, fmt.Errorf("delete %d messages: %w", len(uids), err)
	}
	if s.caps.Has(imap.CapUIDPlus) || s.caps.Has(imap.CapIMAP4rev2) {
		err = s.short(ctx, func() error { return s.client.UIDExpunge(uidSet(uids)).Close() })
	} else {
		err = s.expungeOnly(ctx, uids)
	}
	if err != nil {
		return nil, fmt.Errorf("delete %d messages: %w", len(uids), err)
	}
	rows, err := s.rows(ctx, uids)
	if err != nil {
		return nil, fmt.Errorf("delete %d messages: %w", len(uids), err)
	}
	for _, r := range rows {
		left = append(left, r.UID)
	}
	return left, nil
}

// expungeOnly deletes messages where EXPUNGE cannot name them (no RFC 4315): what others have marked for deletion loses
// its mark for as long as it takes.
func (s *Session) expungeOnly(ctx context.Context, uids []uint32) error {
	var others []uint32
	err := s.short(ctx, func() error {
		found, err := s.client.UIDSearch(&imap.SearchCriteria{Flag: []imap.Flag{imap.FlagDeleted}}, nil).Wait()
		if err != nil {
			return err
		}
		set, _ := found.All.(imap.UIDSet)
		others, err = without(set, uids)
		return err
	})
	if err != nil {
		return err
	}
	for part := range slices.Chunk(others, 500) {
		if err := s.store(ctx, part, imap.StoreFlagsDel, imap.FlagDeleted); err != nil {
			return err
		}
	}
	if err := s.short(ctx, func() error { return s.client.Expunge().Close() }); err != nil {
		return err
	}
	for part := range slices.Chunk(others, 500) {
		if err := s.store(ctx, part, imap.StoreFlagsAdd, imap.FlagDeleted); err != nil {
			return err
		}
	}
	return nil
}

// maxOthers is how many messages may be marked for deletion where EXPUNGE takes them all.
const maxOthers = 50_000

// without lists the UIDs of a server's set but for the given ones.
func without(set imap.UIDSet, uids []uint32) ([]uint32, error) {
	var out []uint32
	for _, r := range set {
		if r.Start == 0 || r.Stop < r.Start || int64(r.Stop)-int64(r.Start) > int64(maxOthers-len(out)) {
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

func (s *Session) store(ctx context.Context, uids []uint32, op imap.StoreFlagsOp, flag imap.Flag) error {
	return s.short(ctx, func() error {
		return s.client.Store(uidSet(uids), &imap.StoreFlags{Op: op, Silent: true, Flags: []imap.Flag{flag}}, nil).Close()
	})
}

// rows reads the rows of those of the messages that are there.
func (s *Session) rows(ctx context.Context, uids []uint32) (rows []Row, err error) {
	err = s.short(ctx, func() error {
		cmd := s.client.Fetch(uidSet(uids), &imap.FetchOptions{UID: true, Flags: true})
		for m := cmd.Next(); m != nil; m = cmd.Next() {
			rows = append(rows, readRow(m))
		}
		return cmd.Close()
	})
	return rows, err
}
