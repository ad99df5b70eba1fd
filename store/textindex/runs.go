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

// A textPlace is where a message is in the order of inboxes.
type textPlace = postings.Place

// A textRun is the row of a run.
type textRun struct {
	account        uint32
	id             uint64
	state          byte
	docs           int
	bytes          int64     // of its blocks
	newest, oldest textPlace // of its messages
}

// What a run may be; only a ready one is searched.
const (
	textBuilding = iota // its rows are being written
	textReady
	textDropping // its rows are being deleted
)

// A run row: version 1 | state 1 | docs 4 | bytes 8 | newest place 16 | oldest place 16 | crc32c 4.
const textRunRowSize = 46

func (r *textRun) key() (key [12]byte) {
	binary.BigEndian.PutUint32(key[0:], r.account)
	binary.BigEndian.PutUint64(key[4:], r.id)
	return key
}

func (r *textRun) row() []byte {
	b := append(make([]byte, 0, textRunRowSize+rowform.SumSize), engine.RowVersion, r.state)
	b = binary.BigEndian.AppendUint32(b, uint32(r.docs))
	b = binary.BigEndian.AppendUint64(b, uint64(r.bytes))
	b = append(b, r.newest[:]...)
	key := r.key()
	return mailrow.BucketTextRun.Seal(key[:], append(b, r.oldest[:]...))
}

// ofText is what open answers of a row of the text index, which is made anew where it is damaged.
func ofText(row []byte, err error) ([]byte, error) {
	if errors.Is(err, engine.ErrDamagedRow) {
		err = ErrDamaged
	}
	return row, err
}

func (r *textRun) decode(key, row []byte) error {
	row, err := ofText(mailrow.BucketTextRun.OpenAny(key, row))
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

// textRuns gives the runs of an account, or of all accounts if that is 0, oldest first.
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
			return nil, fmt.Errorf("run %x of the text index: %w", k, err)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

func putTextRun(tx *mailindex.Tx, r *textRun) error {
	key := r.key()
	return tx.PutRow(mailrow.BucketTextRun, key[:], r.row())
}

// textPlaces is how many places one row has, which fill a page.
const textPlaces = 250

// textPlacesFrom gives the places of the messages of a run from a multiple of textPlaces on.
func textPlacesFrom(tx *mailindex.Tx, run *textRun, number int) ([]byte, error) {
	of := run.key()
	key := binary.BigEndian.AppendUint32(of[:], uint32(number))
	row, err := tx.GetRow(mailrow.BucketTextPlace, key), error(nil)
	want := min(run.docs-number, textPlaces) * mailrow.PlaceSize
	if len(row) != want { // else it is from before there were checksums
		row, err = ofText(mailrow.BucketTextPlace.Open(key, row))
		if err == nil {
			row = row[1:]
		}
	}
	if err == nil && (want <= 0 || len(row) != want) {
		err = ErrDamaged
	}
	if err != nil {
		return nil, fmt.Errorf("messages %d of run %x of the text index: %w", number, of, err)
	}
	return row, nil
}

// allPlaces gives the places of all messages of a run.
func allPlaces(tx *mailindex.Tx, run *textRun) ([]textPlace, error) {
	places := make([]textPlace, 0, run.docs)
	for n := 0; n < run.docs; n += textPlaces {
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

// textRunData is a run that is to be written.
type textRunData struct {
	account uint32
	places  []textPlace // newest first
	blocks  []postings.Block
	size    int64
}

// A textRow is one row of a run, with its bucket.
type textRow struct {
	bucket     *engine.Bucket
	key, value []byte
}

// openWords verifies a block of words. A block from before there were checksums begins with how
// many bytes its first word shares with none, so with less than a version.
func openWords(key, row []byte) ([]byte, error) {
	if len(row) == 0 || row[0] < 0x10 {
		return row, nil
	}
	row, err := ofText(mailrow.BucketTextWord.Open(key, row))
	if err != nil {
		return nil, fmt.Errorf("words of the text index up to %q: %w", key[min(len(key), 12):], err)
	}
	return row[1:], nil
}

// start gives the run a number and its row.
func (d *textRunData) start(tx *mailindex.Tx, state byte) (*textRun, error) {
	id, err := tx.Next(mailrow.BucketTextRun)
	if err != nil {
		return nil, err
	}
	r := &textRun{
		account: d.account, id: id, state: state, docs: len(d.places), bytes: d.size,
		newest: d.places[0], oldest: d.places[len(d.places)-1],
	}
	return r, putTextRun(tx, r)
}

// all gives the rows that a run has besides its own, each bucket in its order.
func (d *textRunData) all(r *textRun) (rows []textRow) {
	key := r.key()
	for n := 0; n < len(d.places); n += textPlaces {
		b := []byte{engine.RowVersion}
		for _, place := range d.places[n:min(n+textPlaces, len(d.places))] {
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

func putTextRows(tx *mailindex.Tx, rows []textRow) error {
	for _, row := range rows {
		tx.Bucket(row.bucket).FillPercent = 1 // a run's rows come in their order and stay as they are
		if err := tx.PutRow(row.bucket, row.key, row.value); err != nil {
			return err
		}
	}
	return nil
}

// dropTextRows deletes up to limit rows of a run, and its own row with the last of them.
func dropTextRows(tx *mailindex.Tx, r *textRun, limit int) (done bool, err error) {
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

// ErrOrder is returned for messages of a batch that do not come newest first, or are too many.
var ErrOrder = errors.New("messages of a text batch come newest first, at most 30000")

// A Batch gathers the words of messages in INBOX folders of one account, which become
// searchable together.
type Batch struct {
	account uint32
	places  []textPlace
	index   map[string]int
	numbers [][]uint16 // of the messages that have each word
	err     error
}

// NewBatch begins a batch.
func NewBatch(account uint32) *Batch {
	return &Batch{account: account, index: map[string]int{}}
}

// Message says which message the words that follow are of. Messages come newest first, in the order
// of InboxPos.
func (b *Batch) Message(at mailrow.InboxPos) {
	place := at.Place()
	if n := len(b.places); n == textRunDocs || n > 0 && bytes.Compare(place[:], b.places[n-1][:]) >= 0 {
		b.err = ErrOrder
		return
	}
	b.places = append(b.places, place)
}

// Word adds a word of the message, of which the first 255 bytes count. It may come as often as it
// likes.
func (b *Batch) Word(word []byte) {
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

// Len is how many messages the batch has.
func (b *Batch) Len() int { return len(b.places) }

// run does what can be done before the transaction.
func (b *Batch) run() *textRunData {
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

// A Prepared batch can be written.
type Prepared struct{ *textRunData }

// Prepare does what can be done before the transaction. The error is ErrOrder.
func (b *Batch) Prepare() (Prepared, error) {
	if b.err != nil {
		return Prepared{}, b.err
	}
	return Prepared{b.run()}, nil
}

// Write makes the messages of the batch searchable.
func (p Prepared) Write(tx *mailindex.Tx) error {
	if len(p.places) == 0 {
		return nil
	}
	run, err := p.start(tx, textReady)
	if err != nil {
		return err
	}
	return putTextRows(tx, p.all(run))
}

// DropAccount deletes the runs of an account, about so many rows of them. It must not run beside
// what writes the index.
func DropAccount(tx *mailindex.Tx, account uint32, rows int) (done bool, err error) {
	runs, err := textRuns(tx, account)
	if len(runs) == 0 || err != nil {
		return err == nil, err
	}
	for i := range runs {
		if runs[i].state == textDropping {
			continue
		}
		runs[i].state = textDropping // or a run would miss some of its rows
		if err := putTextRun(tx, &runs[i]); err != nil {
			return false, err
		}
	}
	_, err = dropTextRows(tx, &runs[0], rows)
	return false, err
}
