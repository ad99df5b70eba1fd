package store

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
)

// Subscriptions are how the names that a mailbox is subscribed to although it has no folders of
// them were kept, as one record; IMAP keeps such names (RFC 3501 section 6.3.6). Today each is a
// row of bktSubscribed, and a record becomes rows when one of its mailbox's names changes.
type Subscriptions struct {
	Mailbox uint32 // number
	Names   []string
}

// SubscribedNames keeps what has not become rows yet, by SubscriptionsID.
var SubscribedNames = newTable("subscribed_names", func(s *Subscriptions) string { return SubscriptionsID(s.Mailbox) })

// SubscriptionsID is the id of a mailbox's Subscriptions.
func SubscriptionsID(mailbox uint32) string { return strconv.FormatUint(uint64(mailbox), 10) }

// Subscribed gives the names that the mailbox is subscribed to and has no folders of, in their
// order.
func (tx *Tx) Subscribed(mailbox uint32) (names []string, err error) {
	old, err := SubscribedNames.FindShared(tx, SubscriptionsID(mailbox))
	if err != nil {
		return nil, err
	}
	if old != nil {
		names = slices.Clone(old.Names)
	}
	prefix := subscribedKey(mailbox, "")
	for k := range tx.ascend(tx.messageBucket(bktSubscribed), prefix) {
		if !bytes.HasPrefix(k, prefix) {
			break
		}
		names = append(names, string(k[len(prefix):]))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// SetNameSubscribed keeps or forgets the subscription of a name.
func (tx *Tx) SetNameSubscribed(mailbox uint32, name string, subscribed bool) error {
	if err := tx.MoveSubscriptions(mailbox); err != nil {
		return err
	}
	key := subscribedKey(mailbox, name)
	switch has := tx.hasRow(bktSubscribed, key); {
	case subscribed && !has:
		return tx.putRow(bktSubscribed, key, nil)
	case !subscribed && has:
		return tx.deleteRow(bktSubscribed, key)
	}
	return nil
}

// MoveSubscriptions makes rows of a record of before, which had a thousand names at most.
func (tx *Tx) MoveSubscriptions(mailbox uint32) error {
	old, err := SubscribedNames.FindShared(tx, SubscriptionsID(mailbox))
	if old == nil || err != nil {
		return err
	}
	for _, name := range old.Names {
		if err := tx.putRow(bktSubscribed, subscribedKey(mailbox, name), nil); err != nil {
			return err
		}
	}
	return SubscribedNames.Delete(tx, SubscriptionsID(mailbox))
}

// dropSubscriptions forgets all names of a mailbox.
func (tx *Tx) dropSubscriptions(mailbox uint32) error {
	names, err := tx.Subscribed(mailbox)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := tx.SetNameSubscribed(mailbox, name, false); err != nil {
			return err
		}
	}
	return nil
}

func subscribedKey(mailbox uint32, name string) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(name)), mailbox), name...)
}
