package mailindex

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
)

// FindRef completes the reference `at`, of which it uses only Segment and Offset: Head and Length
// come from the first row that refers to these bytes. found is false if nothing refers to them.
func FindRef(tx *Tx, at mailrow.BlobRef) (ref mailrow.BlobRef, found bool, err error) {
	prefix := mailrow.BlobPrefix(at)
	k, row := tx.Seek(mailrow.BucketRef, prefix[:])
	if k == nil || string(k[:min(8, len(k))]) != string(prefix[:]) {
		return mailrow.BlobRef{}, false, nil
	}
	ref, _, err = mailrow.DecodeRef(k, row)
	return ref, err == nil, err
}

// AddRef adds a reference from owner to the blob. The error is ErrNotFound if the blob has neither
// a reference nor a lease: such bytes may be deleted at any time.
func AddRef(tx *Tx, ref mailrow.BlobRef, owner []byte) error {
	known, found, err := FindRef(tx, ref)
	if err != nil {
		return err
	}
	leased := tx.index.Leases.Has(ref)
	if !leased && (!found || known != ref) {
		return fmt.Errorf("refer to the blob at %d in segment %08x: %w", ref.Offset, ref.Segment, engine.ErrNotFound)
	}
	if !found {
		tx.NoteMessage(ref)
		if err := AddLiveBytes(tx, ref.Segment, ref.Size()); err != nil {
			return err
		}
	}
	if leased {
		tx.After(func() { tx.index.Leases.Release(ref) })
	}
	prefix := mailrow.BlobPrefix(ref)
	return tx.PutRow(mailrow.BucketRef, append(prefix[:], owner...), mailrow.RefRow(ref))
}

// DropRef deletes a reference. After the last one, the blob's bytes are no longer live. The error
// is ErrNotFound if there is no such reference.
func DropRef(tx *Tx, ref mailrow.BlobRef, owner []byte) error {
	prefix := mailrow.BlobPrefix(ref)
	key := append(prefix[:], owner...)
	if string(tx.GetRow(mailrow.BucketRef, key)) != string(mailrow.RefRow(ref)) {
		return fmt.Errorf("delete reference of %q to the blob at %d in segment %08x: %w", owner, ref.Offset, ref.Segment, engine.ErrNotFound)
	}
	if err := tx.DeleteRow(mailrow.BucketRef, key); err != nil {
		return err
	}
	if _, found, err := FindRef(tx, ref); err != nil || found {
		return err
	}
	if tx.GetRow(mailrow.BucketStructure, prefix[:]) != nil {
		if err := tx.DeleteRow(mailrow.BucketStructure, prefix[:]); err != nil {
			return err
		}
	}
	return AddLiveBytes(tx, ref.Segment, -ref.Size())
}

// LiveBytes returns the size of the records of a segment that have references.
func LiveBytes(tx *Tx, segment uint32) (int64, error) {
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], segment)
	row := tx.GetRow(mailrow.BucketLive, key[:])
	if row == nil {
		return 0, nil
	}
	if len(row) != 8 {
		return 0, fmt.Errorf("read live bytes of segment %08x: %w", segment, engine.ErrDamagedRow)
	}
	return int64(binary.BigEndian.Uint64(row)), nil
}

// AddLiveBytes adds size, which may be negative, to the live bytes of a segment.
func AddLiveBytes(tx *Tx, segment uint32, size int64) error {
	live, err := LiveBytes(tx, segment)
	if err != nil {
		return err
	}
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], segment)
	if live+size == 0 {
		return tx.DeleteRow(mailrow.BucketLive, key[:])
	}
	return tx.PutRow(mailrow.BucketLive, key[:], binary.BigEndian.AppendUint64(nil, uint64(live+size)))
}

// Owners returns the owners of all references to a blob.
func Owners(tx *Tx, ref mailrow.BlobRef) (owners [][]byte, err error) {
	prefix := mailrow.BlobPrefix(ref)
	for k, row := range tx.Ascend(mailrow.BucketRef, prefix[:]) {
		if !bytes.HasPrefix(k, prefix[:]) {
			break
		}
		found, owner, err := mailrow.DecodeRef(k, row)
		if err != nil {
			return nil, err
		}
		if found == ref {
			owners = append(owners, bytes.Clone(owner))
		}
	}
	return owners, nil
}

// OwnerMessage returns the message that an owner of kind OwnerMessage identifies.
func OwnerMessage(tx *Tx, owner []byte) (*mailrow.Message, error) {
	if len(owner) != 13 || owner[0] != mailrow.OwnerMessage {
		return nil, fmt.Errorf("blob owner %q is not a message: %w", owner, engine.ErrDamagedRow)
	}
	return tx.Message(binary.BigEndian.Uint32(owner[1:]), binary.BigEndian.Uint32(owner[5:]), binary.BigEndian.Uint32(owner[9:]))
}
