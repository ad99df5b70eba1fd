package textindex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mailstead/mailstead/store/engine"
	"github.com/mailstead/mailstead/store/mailindex"
	"github.com/mailstead/mailstead/store/mailrow"
	"github.com/mailstead/mailstead/store/postings"
	"github.com/mailstead/mailstead/store/rowform"
)

// A textPlace is a message's position in the order of message lists, see mailrow.InboxPos.
type textPlace = postings.Place

// A textRun is the row of a run in BucketTextRun.
type textRun struct {
	account        uint32
	id             uint64
	state          byte
	docs           int       // number of messages
	bytes          int64     // total size of its blocks of words
	newest, oldest textPlace // places of its newest and oldest message
}

// The states of a run. Only a ready run is searched.
const (
	textBuilding = iota // its rows are being written
	textReady
	textDropping // its rows are being deleted
)

// textRunRowSize is the size of a run row without its checksum: version 1 | state 1 | docs 4 |
// bytes 8 | newest place 16 | oldest place 16 | crc32c 4.
const textRunRowSize = 46

// key returns the key of the run, which is also the prefix of the keys of its other rows.
func (r *textRun) key() (key [12]byte) {
	binary.BigEndian.PutUint32(key[0:], r.account)
	binary.BigEndian.PutUint64(key[4:], r.id)
	return key
}

// row encodes the run, with the checksum.
func (r *textRun) row() []byte {
	b := append(make([]byte, 0, textRunRowSize+rowform.SumSize), engine.RowVersion, r.state)
	b = binary.BigEndian.AppendUint32(b, uint32(r.docs))
	b = binary.BigEndian.AppendUint64(b, uint64(r.bytes))
	b = append(b, r.newest[:]...)
	key := r.key()
	return mailrow.BucketTextRun.Seal(key[:], append(b, r.oldest[:]...))
}

// asTextDamage replaces ErrDamagedRow by ErrDamaged: a damaged text index can be rebuilt.
func asTextDamage(row []byte, err error) ([]byte, error) {
	if errors.Is(err, engine.ErrDamagedRow) {
		err = ErrDamaged
	}
	return row, err
}

// decode verifies a row and decodes it.
func (r *textRun) decode(key, row []byte) error {
	row, err := asTextDamage(mailrow.BucketTextRun.OpenLegacy(key, row))
	if err != nil {
		return err
	}
	if len(key) != 12 || len(row) != textRunRowSize || row[1] > textDropping {
		return ErrDamaged
	}
	*r = textRun{
		account: binary.BigEndian.Uint32(key), id: binary.BigEndian.Uint64(key[4:]), state: row[1],
		docs: int(binary.BigEndian.Uint32(row[2:])), bytes: int64(binary.BigEndian.Uint64(row[6:])),
		newest: textPlace(row[14:30]), oldest: textPlace(row[30:46]),
	}
	if r.docs > textRunDocs || r.docs == 0 {
		return ErrDamaged
	}
	return nil
}

// textRuns returns the runs of an account, or of all accounts if account is 0, oldest first.
func textRuns(tx *mailindex.Tx, account uint32) (runs []textRun, err error) {
	var prefix []byte
	if account != 0 {
		prefix = binary.BigEndian.AppendUint32(nil, account)
	}
	for k, row := range tx.Ascend(mailrow.BucketTextRun, prefix) {
		if !bytes.HasPrefix(k, prefix) {
			break
		}
		var r textRun
		if err := r.decode(k, row); err != nil {
			return nil, fmt.Errorf("read run %x of the text index: %w", k, err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// putTextRun writes the row of a run.
func putTextRun(tx *mailindex.Tx, r *textRun) error {
	key := r.key()
	return tx.PutRow(mailrow.BucketTextRun, key[:], r.row())
}

// placesPerRow is how many places one row has. Such a row fills a page of the database.
const placesPerRow = 250

// textPlacesFrom returns the places of the messages of a run from the given number on, which is a
// multiple of placesPerRow. It returns at most placesPerRow places.
func textPlacesFrom(tx *mailindex.Tx, run *textRun, number int) ([]byte, error) {
	of := run.key()
	key := binary.BigEndian.AppendUint32(of[:], uint32(number))
	row, err := tx.GetRow(mailrow.BucketTextPlace, key), error(nil)
	want := min(run.docs-number, placesPerRow) * mailrow.PlaceSize
	if len(row) != want { // old rows have no checksum
		row, err = asTextDamage(mailrow.BucketTextPlace.Open(key, row))
		if err == nil {
			row = row[1:]
		}
	}
	if err == nil && (want <= 0 || len(row) != want) {
		err = ErrDamaged
	}
	if err != nil {
		return nil, fmt.Errorf("read places from %d of run %x of the text index: %w", number, of, err)
	}
	return row, nil
}

// allPlaces returns the places of all messages of a run, newest first.
func allPlaces(tx *mailindex.Tx, run *textRun) ([]textPlace, error) {
	places := make([]textPlace, 0, run.docs)
	for n := 0; n < run.docs; n += placesPerRow {
		row, err := textPlacesFrom(tx, run, n)
		if err != nil {
			return nil, err
		}
		for place := range slices.Chunk(row, mailrow.PlaceSize) {
			places = append(places, textPlace(place))
		}
	}
	return places, nil
}

// textRunData is the content of a run that is not written yet.
type textRunData struct {
	account uint32
	places  []textPlace // newest first
	blocks  []postings.Block
	size    int64 // total size of the blocks
}

// A textRow is one row of a run.
type textRow struct {
	bucket     *engine.Bucket
	key, value []byte
}

// openWords verifies a block of words. Old blocks have neither a version nor a checksum. Their
// first byte is 0: the length of the prefix that the first word shares with the word before.
func openWords(key, row []byte) ([]byte, error) {
	if len(row) == 0 || row[0] < 0x10 {
		return row, nil
	}
	row, err := asTextDamage(mailrow.BucketTextWord.Open(key, row))
	if err != nil {
		return nil, fmt.Errorf("read words of the text index up to %q: %w", key[min(len(key), 12):], err)
	}
	return row[1:], nil
}

// createRun assigns the run an id and writes its row with the state.
func (d *textRunData) createRun(tx *mailindex.Tx, state byte) (*textRun, error) {
	id, err := tx.NextSequence(mailrow.BucketTextRun)
	if err != nil {
		return nil, err
	}
	r := &textRun{
		account: d.account, id: id, state: state, docs: len(d.places), bytes: d.size,
		newest: d.places[0], oldest: d.places[len(d.places)-1],
	}
	return r, putTextRun(tx, r)
}

// rows returns the rows of places and words of a run, by bucket and in the order of keys.
func (d *textRunData) rows(r *textRun) (rows []textRow) {
	key := r.key()
	for n := 0; n < len(d.places); n += placesPerRow {
		b := []byte{engine.RowVersion}
		for _, place := range d.places[n:min(n+placesPerRow, len(d.places))] {
			b = append(b, place[:]...)
		}
		k := binary.BigEndian.AppendUint32(slices.Clone(key[:]), uint32(n))
		rows = append(rows, textRow{mailrow.BucketTextPlace, k, mailrow.BucketTextPlace.Seal(k, b)})
	}
	for _, block := range d.blocks {
		k := append(slices.Clone(key[:]), block.Last...)
		rows = append(rows, textRow{mailrow.BucketTextWord, k, mailrow.BucketTextWord.Seal(k, append([]byte{engine.RowVersion}, block.Data...))})
	}
	return rows
}

// putTextRows writes rows of a run.
func putTextRows(tx *mailindex.Tx, rows []textRow) error {
	for _, row := range rows {
		tx.Bucket(row.bucket).FillPercent = 1 // rows come in key order and never change
		if err := tx.PutRow(row.bucket, row.key, row.value); err != nil {
			return err
		}
	}
	return nil
}

// deleteRunRows deletes up to limit rows of a run, and the run's own row with the last of them.
// done is false if rows remain.
func deleteRunRows(tx *mailindex.Tx, r *textRun, limit int) (done bool, err error) {
	prefix := r.key()
	for _, bucket := range []*engine.Bucket{mailrow.BucketTextPlace, mailrow.BucketTextWord} {
		for k := range tx.Ascend(bucket, prefix[:]) {
			if !bytes.HasPrefix(k, prefix[:]) {
				break
			}
			if limit--; limit < 0 {
				return false, nil
			}
			if err := tx.DeleteRow(bucket, bytes.Clone(k)); err != nil {
				return false, err
			}
		}
	}
	return true, tx.DeleteRow(mailrow.BucketTextRun, prefix[:])
}

// ErrOrder is returned for a batch whose messages are not newest first, or are more than 30000.
var ErrOrder = errors.New("messages of a text batch must be newest first, and at most 30000")

// A Batch collects the words of messages of one account, which become searchable together.
type Batch struct {
	account uint32
	places  []textPlace
	// index of each word in numbers
	index   map[string]int
	numbers [][]uint16 // by word: the numbers of the messages that have it
	err     error
}

// NewBatch returns an empty batch for messages of an account.
func NewBatch(account uint32) *Batch {
	return &Batch{account: account, index: map[string]int{}}
}

// AddMessage adds a message; the calls of AddWord that follow add its words. Messages must come
// newest first, in the reverse order of mailrow.ComparePos.
func (b *Batch) AddMessage(at mailrow.InboxPos) {
	place := at.Place()
	if n := len(b.places); n == textRunDocs || n > 0 && bytes.Compare(place[:], b.places[n-1][:]) >= 0 {
		b.err = ErrOrder
		return
	}
	b.places = append(b.places, place)
}

// AddWord adds a word of the last message, cut to 255 bytes. Repeated words are ignored.
func (b *Batch) AddWord(word []byte) {
	if len(b.places) == 0 || len(word) == 0 {
		return
	}
	word = word[:min(len(word), postings.MaxWord)]
	number := uint16(len(b.places) - 1)
	i, known := b.index[string(word)]
	if !known {
		b.index[string(word)] = len(b.numbers)
		b.numbers = append(b.numbers, []uint16{number})
		return
	}
	if list := b.numbers[i]; list[len(list)-1] != number {
		b.numbers[i] = append(list, number)
	}
}

// Len returns the number of messages in the batch.
func (b *Batch) Len() int { return len(b.places) }

// encode encodes the batch. It needs no transaction.
func (b *Batch) encode() *textRunData {
	words := slices.AppendSeq(make([]string, 0, len(b.index)), maps.Keys(b.index))
	slices.Sort(words)
	var w postings.BlockWriter
	for _, word := range words {
		w.Add([]byte(word), b.numbers[b.index[word]])
	}
	d := &textRunData{account: b.account, places: b.places}
	d.blocks, d.size = w.Finish()
	return d
}

// A PreparedBatch is an encoded batch.
type PreparedBatch struct{ *textRunData }

// Prepare encodes the batch, so that the transaction of Write is short. The error is ErrOrder.
func (b *Batch) Prepare() (PreparedBatch, error) {
	if b.err != nil {
		return PreparedBatch{}, b.err
	}
	return PreparedBatch{b.encode()}, nil
}

// Write writes the batch as a run. Its messages are searchable once tx is committed.
func (p PreparedBatch) Write(tx *mailindex.Tx) error {
	if len(p.places) == 0 {
		return nil
	}
	run, err := p.createRun(tx, textReady)
	if err != nil {
		return err
	}
	return putTextRows(tx, p.rows(run))
}

// DropAccount deletes up to about `rows` rows of an account's runs. Call it in new transactions
// until done is true. No other call may write the index meanwhile.
func DropAccount(tx *mailindex.Tx, account uint32, rows int) (done bool, err error) {
	runs, err := textRuns(tx, account)
	if len(runs) == 0 || err != nil {
		return err == nil, err
	}
	for i := range runs {
		if runs[i].state == textDropping {
			continue
		}
		runs[i].state = textDropping // a search must not use a run that lacks rows
		if err := putTextRun(tx, &runs[i]); err != nil {
			return false, err
		}
	}
	_, err = deleteRunRows(tx, &runs[0], rows)
	return false, err
}
