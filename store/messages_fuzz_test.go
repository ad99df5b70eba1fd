package store

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
)

// A rowCodec is one form of row: decode must not panic on any bytes, and what it accepts must
// survive encoding.
type rowCodec interface{ Row() []byte }

func checkCodec[T rowCodec](t *testing.T, row []byte, decode func([]byte) (T, error)) {
	t.Helper()
	first, err := decode(row)
	if err != nil {
		return
	}
	second, err := decode(first.Row())
	if err != nil || !reflect.DeepEqual(first, second) {
		t.Errorf("row %x is %+v, written again %+v, %v", row, first, second, err)
	}
}

// sealed returns a row with a valid checksum, so that the code behind the check is tested; half of
// the rows that are not of an old version stay as they are.
func sealed(i *engine.Bucket, key, row []byte) []byte {
	if len(row) == 0 || row[0] < 0x10 || len(row)%2 == 0 {
		return row
	}
	return i.Seal(key, bytes.Clone(row))
}

// A wholeMeta is a Meta with the rest of its row.
type wholeMeta struct {
	Meta
	version byte
}

func (m *wholeMeta) Row() []byte { return mailrow.BucketMeta.Seal(nil, m.Meta.Row(m.version)) }

func FuzzMessageRow(f *testing.F) {
	full := &Message{
		Account: 1, Mailbox: 2, Folder: 3, UID: 4, Blob: BlobRef{Segment: 5, Offset: 6, Head: 7, Length: 8}, Received: second(9),
		Flags: 31, Bits: 15, ModSeq: 10, Keywords: []string{"a", "bc"},
	}
	f.Add(full.Row())
	f.Add((&Message{Received: time.Unix(0, 0)}).Row())
	f.Add([]byte{})
	key := full.Key()
	f.Fuzz(func(t *testing.T, row []byte) {
		row = sealed(mailrow.BucketMessage, key[:], row)
		checkCodec(t, row, func(row []byte) (*Message, error) {
			m := new(Message)
			return m, m.Decode(key[:], row)
		})
	})
}

func FuzzMetaRow(f *testing.F) {
	f.Add((&wholeMeta{Meta{
		Structure: []byte{1, 2}, Preview: "Hello", ThreadID: "t", OriginalMessageID: "<o@x>", ReturnPath: "a@b",
		SPF: "pass", DKIM: "fail", DMARC: "none",
	}, engine.RowVersion}).Row())
	f.Add((&wholeMeta{Meta{Preview: "Hello", Recipient: "a@b", Bcc: "c@d"}, engine.RowVersion}).Row())
	f.Add((&wholeMeta{Meta{Bcc: "c@d\ne@f"}, engine.RowVersion}).Row())
	f.Add((&wholeMeta{Meta{AnsweredBy: "team ann"}, engine.RowVersion}).Row())
	f.Add((&wholeMeta{Meta{Judged: "none fail reject"}, engine.RowVersion}).Row())
	f.Add((&wholeMeta{version: mailrow.MetaShared}).Row())
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, row []byte) {
		checkCodec(t, sealed(mailrow.BucketMeta, nil, row), func(row []byte) (*wholeMeta, error) {
			m := &wholeMeta{version: engine.RowVersion}
			shared, err := m.Decode(nil, row)
			if shared {
				m.version = mailrow.MetaShared
			}
			return m, err
		})
	})
}

func FuzzFolderRow(f *testing.F) {
	full := &Folder{
		Mailbox: 1, ID: 2, Name: "Sent", SpecialUse: `\Sent`, Subscribed: true,
		UIDValidity: 3, UIDNext: 4, ModSeq: 5, Messages: 6, Unseen: 7, Bytes: 8,
	}
	f.Add(full.Row())
	f.Add([]byte{1})
	key := mailrow.FolderKey(1, 2)
	f.Fuzz(func(t *testing.T, row []byte) {
		row = sealed(mailrow.BucketFolder, key[:], row)
		checkCodec(t, row, func(row []byte) (*Folder, error) {
			folder := new(Folder)
			return folder, folder.Decode(key[:], row)
		})
	})
}
