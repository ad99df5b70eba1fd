package segment

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzSegmentFile opens a directory whose newest segment has foreign bytes behind a good header, or
// foreign bytes only.
func FuzzSegmentFile(f *testing.F) {
	head := header{number: 1, firstSeq: 1, mark: fileMark{'m', 'a', 'r', 'k'}}
	d := &recordWriter{}
	record := func(env, body string) []byte {
		if err := d.prepare([]byte(env), record{body: int64(len(body))}, bytes.NewReader([]byte(body))); err != nil {
			f.Fatal(err)
		}
		d.rec.encodeHead(head.mark, d.buf[:d.rec.head])
		return bytes.Clone(d.buf)
	}
	one, two := record("env", "body"), record("", "")
	f.Add(true, []byte{})
	f.Add(true, append(one, two...))
	f.Add(true, append(one[:len(one)-1:len(one)-1], two...))
	f.Add(true, append(two, one[:20]...))
	f.Add(true, append(two, make([]byte, 100)...))
	f.Add(false, head.appendTo(nil))
	f.Add(false, []byte(magic))
	f.Fuzz(func(t *testing.T, withHead bool, data []byte) {
		if withHead {
			data = append(head.appendTo(nil), data...)
		}
		dir := t.TempDir()
		path := filepath.Join(dir, "segments", "00000001.seg")
		if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, Options{})
		if err != nil {
			if !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
			return
		}
		defer s.Close()
		before := fuzzRecords(t, s)
		spools, err := OpenSpools(dir)
		if err != nil {
			t.Fatal(err)
		}
		sp := spools.New(100)
		defer sp.Close()
		sp.Prepend([]byte("message"))
		ref, err := s.Append([]byte("env"), sp)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(ref); err != nil {
			t.Fatal(err)
		}
		if after := fuzzRecords(t, s); after != before+1 {
			t.Fatalf("%d records became %d by one append", before, after)
		}
	})
}

// fuzzRecords counts the whole records, each of which must open.
func fuzzRecords(t *testing.T, s *Store) int {
	n := 0
	for _, info := range s.List() {
		err := s.each(info.Number, func(ref Ref, _ uint64, _ []byte) error {
			n++
			return s.Verify(ref)
		})
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	}
	return n
}

func FuzzParseRef(f *testing.F) {
	f.Add(Ref{1, 2, 3, 4}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		ref, err := ParseRef(data)
		if err == nil && !bytes.Equal(ref.AppendTo(nil), data[:refSize]) {
			t.Errorf("%x becomes %+v", data, ref)
		}
	})
}
