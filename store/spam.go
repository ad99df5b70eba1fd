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

// A SpamModel counts the messages that an account's spam classifier has learned from.
type SpamModel struct {
	AccountID string
	Spam      uint32
	Ham       uint32 // wanted mail

	// Owed counts, by mailbox number, the spam messages for which no wanted message was learned yet
	// to balance them.
	Owed map[uint32]uint32 `json:",omitzero"`
}

// SpamModels keeps one record for each account that has trained its classifier.
var SpamModels = engine.NewTable("spam_model", func(m *SpamModel) string { return m.AccountID })

// A SpamLesson is a message that an account's spam classifier has to learn or forget.
type SpamLesson struct {
	ID        string // les_…
	AccountID string
	Mailbox   uint32 // number of the mailbox that has the message
	Blob      BlobRef
	Spam      bool
	Forget    bool   `json:",omitzero"`
	SPF       string `json:",omitzero"` // as in the Meta of the message
	DKIM      string `json:",omitzero"`
	DMARC     string `json:",omitzero"`
	Answers   bool   `json:",omitzero"` // it answers a message that the account has sent
}

// SpamLessons keeps each lesson until it is learned. Check verifies that the Blob of each has a
// reference.
var (
	SpamLessons          = engine.NewTable("spam_lesson", func(l *SpamLesson) string { return l.ID })
	SpamLessonsByAccount = SpamLessons.Index("account", func(l *SpamLesson) string { return l.AccountID })
)

// A SpamCount counts the spam messages and the wanted messages (ham) in which a token occurred, of
// those that the classifier has learned from.
type SpamCount struct {
	Spam, Ham uint16
	Day       uint16 // day since 1970-01-01 on which the token was last counted
}

func spamTokenKey(account uint32, token uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(make([]byte, 0, 12), account), token)
}

// PutSpamToken stores the counts of an account's token. If both counts are 0, it deletes the token.
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

// SpamTokens iterates over the tokens of an account and their counts.
func (tx *Tx) SpamTokens(account uint32) iter.Seq2[uint64, SpamCount] {
	return func(yield func(uint64, SpamCount) bool) {
		prefix := binary.BigEndian.AppendUint32(nil, account)
		for k, row := range tx.Ascend(mailrow.BucketSpamToken, prefix) {
			if !bytes.HasPrefix(k, prefix) {
				return
			}
			c, err := parseSpamTokenRow(k, row)
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

// parseSpamTokenRow parses a row of the bucket spam_token.
func parseSpamTokenRow(key, row []byte) (c SpamCount, err error) {
	row, err = mailrow.BucketSpamToken.Open(key, row)
	if err == nil && (len(key) != 12 || len(row) != 7) {
		err = ErrDamagedRow
	}
	if err != nil {
		return c, fmt.Errorf("read spam token %x: %w", key, err)
	}
	return SpamCount{binary.BigEndian.Uint16(row[1:]), binary.BigEndian.Uint16(row[3:]), binary.BigEndian.Uint16(row[5:])}, nil
}
