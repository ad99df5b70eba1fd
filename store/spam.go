package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/rowform"
)

// A SpamModel says of how many messages the classifier of spam of an account was taught.
type SpamModel struct {
	AccountID string
	Spam      uint32
	Ham       uint32 // wanted mail

	// Owed says by a mailbox's number for how many messages of spam no example of wanted mail was
	// found yet.
	Owed map[uint32]uint32 `json:",omitzero"`
}

// SpamModels keeps one for each account that has taught its classifier anything.
var SpamModels = engine.NewTable("spam_model", func(m *SpamModel) string { return m.AccountID })

// A SpamLesson is a message from which the classifier of spam of an account is to learn, or that it
// is to forget again.
type SpamLesson struct {
	ID        string // les_…
	AccountID string
	Mailbox   uint32 // the number of the message's
	Blob      BlobRef
	Spam      bool
	Forget    bool   `json:",omitzero"`
	SPF       string `json:",omitzero"` // as in the Meta of the message
	DKIM      string `json:",omitzero"`
	DMARC     string `json:",omitzero"`
	Answers   bool   `json:",omitzero"` // it answers one that the account has sent
}

// SpamLessons keeps them until they are learned; Check counts their blobs among the references.
var (
	SpamLessons          = engine.NewTable("spam_lesson", func(l *SpamLesson) string { return l.ID })
	SpamLessonsByAccount = SpamLessons.Index("account", func(l *SpamLesson) string { return l.AccountID })
)

// A SpamCount says in how many messages that were taught a token was.
type SpamCount struct {
	Spam, Ham uint16
	Day       uint16 // since 1970, when it was last counted
}

func spamTokenKey(account uint32, token uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(make([]byte, 0, 12), account), token)
}

// PutSpamToken keeps the counts of a token of an account; one without counts is deleted.
func (tx *Tx) PutSpamToken(account uint32, token uint64, c SpamCount) error {
	key := spamTokenKey(account, token)
	if c.Spam == 0 && c.Ham == 0 {
		return tx.DeleteRow(mailrow.BucketSpamToken, key)
	}
	row := append(make([]byte, 0, 7+rowform.SumSize), engine.RowVersion)
	row = binary.BigEndian.AppendUint16(row, c.Spam)
	row = binary.BigEndian.AppendUint16(row, c.Ham)
	row = binary.BigEndian.AppendUint16(row, c.Day)
	return tx.PutRow(mailrow.BucketSpamToken, key, mailrow.BucketSpamToken.Seal(key, row))
}

// SpamTokens walks the tokens of an account.
func (tx *Tx) SpamTokens(account uint32) iter.Seq2[uint64, SpamCount] {
	return func(yield func(uint64, SpamCount) bool) {
		prefix := binary.BigEndian.AppendUint32(nil, account)
		for k, row := range tx.Ascend(mailrow.BucketSpamToken, prefix) {
			if !bytes.HasPrefix(k, prefix) {
				return
			}
			c, err := spamTokenRow(k, row)
			if err != nil {
				tx.Fail(err)
				return
			}
			if !yield(binary.BigEndian.Uint64(k[4:]), c) {
				return
			}
		}
	}
}

// spamTokenRow reads a row of bktSpamToken.
func spamTokenRow(key, row []byte) (c SpamCount, err error) {
	row, err = mailrow.BucketSpamToken.Open(key, row)
	if err == nil && (len(key) != 12 || len(row) != 7) {
		err = ErrDamagedRow
	}
	if err != nil {
		return c, fmt.Errorf("token of spam %x: %w", key, err)
	}
	return SpamCount{binary.BigEndian.Uint16(row[1:]), binary.BigEndian.Uint16(row[3:]), binary.BigEndian.Uint16(row[5:])}, nil
}
