// Package requestlog keeps rows about requests in files of their own beside a store. Rows are
// appended without a sync, so a crash of the machine may lose the newest ones, and the end of a
// damaged file is ignored. The package does not know what a request is, nor who may read its row.
//
// Each account has a directory, and each file in it has the rows of one time:
//
//	requests/ACCOUNT/0000019b0c4f8a21.log   rows; the name is when the file was begun, in
//	                                        milliseconds since 1970, in 16 hexadecimal digits
//	row   length 4 | form and fields of the row, see package rowform | crc32c 4
//
// The names of an account's files rise. A file has at most 1000 rows and 2 MiB, and an account at
// most 100 files, so it has at most 100 000 rows and 200 MiB; the oldest file goes first.
package requestlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/store/rowform"
)

// Dir is the name of the directory of the log in the data directory.
const Dir = "requests"

const (
	maxFiles  = 100     // of an account
	maxRows   = 1000    // of a file
	maxBytes  = 2 << 20 // of a file
	maxRow    = 64 << 10
	lenSize   = 4
	suffix    = ".log"
	findFiles = 32 // files that Find reads
)

// A Row is one request.
type Row struct {
	ID        string // req_…, unique
	ClientID  string // the id that the client chose; "": none
	At        time.Time
	Method    string
	Path      string // without the query
	Operation string
	Status    int
	Duration  int64 // in milliseconds
	TokenID   string
	TokenName string
	IP        string
	ErrorCode string
	Owner     bool   // the account's owner made it
	Body      []byte // JSON of what is shown of the request's body; nil: nothing
	Answer    []byte // the same of the answer
}

func (r *Row) codeFields(c *rowform.Coder) {
	c.Version(1)
	c.String(&r.ID)
	c.String(&r.ClientID)
	c.Time(&r.At)
	c.String(&r.Method)
	c.String(&r.Path)
	c.String(&r.Operation)
	rowform.Int(c, &r.Status)
	rowform.Int(c, &r.Duration)
	c.String(&r.TokenID)
	c.String(&r.TokenName)
	c.String(&r.IP)
	c.String(&r.ErrorCode)
	c.Bool(&r.Owner)
	c.Bytes(&r.Body)
	c.Bytes(&r.Answer)
}

// rows encodes and decodes rows.
var rows = rowform.Records{
	Sum: rowform.SumOf(Dir), New: func() any { return new(Row) },
	Fields: func(rec any, c *rowform.Coder) { rec.(*Row).codeFields(c) },
}

// A Log is the request log in one data directory. It is safe for concurrent use.
type Log struct {
	dir   string
	mu    sync.Mutex       // held while files are changed
	tails map[string]*tail // of the accounts that were written to, by account
}

// A tail is the end of an account's newest file.
type tail struct {
	name  string // "": the account has no file
	rows  int
	bytes int64
}

// Open returns the log in a data directory. It reads and creates nothing.
func Open(dataDir string) *Log {
	return &Log{dir: filepath.Join(dataDir, Dir), tails: map[string]*tail{}}
}

// Append adds rows to an account's log, the oldest first. now is the name of a file that it begins.
// If it fails, some of the rows may have been added.
func (l *Log) Append(account string, now time.Time, list []Row) error {
	dir, err := l.accountDir(account)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tails[account]
	if t == nil {
		t, err = findTail(dir)
		if err != nil {
			return err
		}
		l.tails[account] = t
	}
	for len(list) > 0 {
		if t.name == "" || t.rows >= maxRows || t.bytes >= maxBytes {
			*t = tail{name: nameAfter(t.name, now)}
			if err := beginFile(dir); err != nil {
				delete(l.tails, account)
				return err
			}
		}
		n, err := t.write(dir, list)
		if err != nil {
			delete(l.tails, account) // its end is looked for again
			return err
		}
		list = list[n:]
	}
	return nil
}

// accountDir returns the directory of an account.
func (l *Log) accountDir(account string) (string, error) {
	if account == "" || account == "." || account == ".." || strings.ContainsAny(account, "/\\\x00") {
		return "", fmt.Errorf("%q is not the id of an account", account)
	}
	return filepath.Join(l.dir, account), nil
}

// findTail finds the end of the newest file in a directory, and cuts off what a crash or a failed
// write has left behind its last row.
func findTail(dir string) (*tail, error) {
	names, err := fileNames(dir)
	if err != nil || len(names) == 0 {
		return &tail{}, err
	}
	t := &tail{name: names[len(names)-1]}
	path := filepath.Join(dir, t.name)
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	for row := range eachRow(data) {
		t.rows++
		t.bytes += int64(lenSize + len(row))
	}
	return t, os.Truncate(path, t.bytes)
}

// beginFile makes room for one more file in a directory, which it creates if it is missing.
func beginFile(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names, err := fileNames(dir)
	if err != nil {
		return err
	}
	for ; len(names) >= maxFiles; names = names[1:] {
		if err := os.Remove(filepath.Join(dir, names[0])); err != nil {
			return err
		}
	}
	return nil
}

// write writes those rows at the start of list that fit into the file. It returns their number,
// which is at least 1.
func (t *tail) write(dir string, list []Row) (n int, err error) {
	var out []byte
	for n < len(list) && t.rows+n < maxRows && (n == 0 || t.bytes+int64(len(out)) < maxBytes) {
		row, err := rows.Row(nil, &list[n])
		if err == nil && len(row) > maxRow {
			err = fmt.Errorf("the row of %s has %d bytes, more than %d", list[n].ID, len(row), maxRow)
		}
		if err != nil {
			return 0, err
		}
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(row))), row...)
		n++
	}
	f, err := os.OpenFile(filepath.Join(dir, t.name), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	if info, err := f.Stat(); err != nil || info.Size() != t.bytes {
		return 0, errors.Join(fmt.Errorf("%s has changed since it was written", f.Name()), err, f.Close())
	}
	if _, err := f.WriteAt(out, t.bytes); err != nil {
		return 0, errors.Join(err, f.Truncate(t.bytes), f.Close())
	}
	t.rows += n
	t.bytes += int64(len(out))
	return n, f.Close()
}

// nameAfter returns the name of a file that is begun at a time, which sorts after the name before.
func nameAfter(before string, now time.Time) string {
	ms := uint64(max(now.UnixMilli(), 0))
	if began, ok := nameTime(before); ok {
		ms = max(ms, began+1)
	}
	return fmt.Sprintf("%016x%s", ms, suffix)
}

// nameTime returns when the file with a name was begun, in milliseconds since 1970.
func nameTime(name string) (ms uint64, ok bool) {
	digits, found := strings.CutSuffix(name, suffix)
	ms, err := strconv.ParseUint(digits, 16, 63)
	return ms, found && err == nil && len(digits) == 16
}

// fileNames returns the names of the log's files in a directory, the oldest first. There are none
// if the directory does not exist.
func fileNames(dir string) (names []string, err error) {
	list, err := os.ReadDir(dir) // sorted
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range list {
		if _, ok := nameTime(e.Name()); ok && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// readFile reads a file of the log. Of a file that is longer than any that Append writes, it reads
// a part.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxBytes+maxRow+lenSize))
}

// eachRow iterates over the rows in the content of a file, with their offsets, up to the first
// length that is wrong. It does not verify the rows.
func eachRow(data []byte) func(yield func(row []byte) bool) {
	return func(yield func([]byte) bool) {
		for len(data) >= lenSize {
			n := int(binary.BigEndian.Uint32(data))
			if n == 0 || n > maxRow || n > len(data)-lenSize || !yield(data[lenSize:lenSize+n]) {
				return
			}
			data = data[lenSize+n:]
		}
	}
}

// Walk calls see for the rows of an account, newest first, until see returns false. from is a
// position that see got in an earlier walk, to continue after that row, or "". An encoded row has
// its texts as they are; Decode decodes it. Walk skips files that cannot be read, and the rest of a
// file behind a wrong length. The error is that of reading the directory.
func (l *Log) Walk(account, from string, see func(position string, row []byte) (more bool)) error {
	dir, err := l.accountDir(account)
	if err != nil {
		return err
	}
	names, err := fileNames(dir)
	if err != nil {
		return err
	}
	last, number, _ := strings.Cut(from, " ")
	before, err := strconv.Atoi(number)
	if err != nil {
		before = maxRows
	}
	for _, name := range slices.Backward(names) {
		if from != "" && name > last {
			continue
		}
		data, err := readFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		list := slices.Collect(eachRow(data))
		if name == last {
			list = list[:min(len(list), before)]
		}
		for i, row := range slices.Backward(list) {
			if !see(name+" "+strconv.Itoa(i), row) {
				return nil
			}
		}
	}
	return nil
}

// Decode decodes a row. The error is that of a damaged row, or of one that only a newer version can
// read.
func Decode(row []byte) (*Row, error) {
	rec, err := rows.Record(nil, row)
	if err != nil {
		return nil, err
	}
	return rec.(*Row), nil
}

// Find returns the row of an account with this id, nil if there is none. at is when the request
// with the id began. A row that was written long after that may not be found.
func (l *Log) Find(account, id string, at time.Time) (*Row, error) {
	dir, err := l.accountDir(account)
	if err != nil {
		return nil, err
	}
	names, err := fileNames(dir)
	if err != nil {
		return nil, err
	}

	// The row was written when the request ended, so it is not in a file before the one that was
	// written to when the request began.
	first, _ := slices.BinarySearch(names, nameAfter("", at))
	names = names[max(first-1, 0):]
	for _, name := range names[:min(len(names), findFiles)] {
		data, err := readFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(data, []byte(id)) {
			continue
		}
		for row := range eachRow(data) {
			if !bytes.Contains(row, []byte(id)) {
				continue
			}
			if r, err := Decode(row); err == nil && r.ID == id {
				return r, nil
			}
		}
	}
	return nil, nil
}

// Accounts lists the accounts that have a directory in the log.
func (l *Log) Accounts() (accounts []string, err error) {
	list, err := os.ReadDir(l.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range list {
		if e.IsDir() {
			accounts = append(accounts, e.Name())
		}
	}
	return accounts, err
}

// Prune deletes the files of an account whose rows were all made before a time.
func (l *Log) Prune(account string, before time.Time) error {
	dir, err := l.accountDir(account)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	names, err := fileNames(dir)
	if err != nil {
		return err
	}
	for i, name := range names {
		newest := i+1 == len(names)
		old := !newest && names[i+1] < nameAfter("", before)
		if newest {
			old, err = isOld(filepath.Join(dir, name), before)
		}
		if err != nil || !old {
			return err
		}
		if newest {
			delete(l.tails, account)
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	_ = os.Remove(dir) // it stays if it has files that are not of the log
	return nil
}

// isOld reports whether no row in a file was made at a time or later.
func isOld(path string, at time.Time) (bool, error) {
	data, err := readFile(path)
	if err != nil {
		return false, err
	}
	for row := range eachRow(data) {
		if r, err := Decode(row); err == nil && !r.At.Before(at) {
			return false, nil
		}
	}
	return true, nil
}

// Drop deletes all rows of an account.
func (l *Log) Drop(account string) error {
	dir, err := l.accountDir(account)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tails, account)
	return os.RemoveAll(dir)
}
