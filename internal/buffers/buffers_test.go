package buffers

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestNothingOfTheOneBefore: a pooled buffer shows no data of its previous user, and unflushed data
// is not written anywhere.
func TestNothingOfTheOneBefore(t *testing.T) {
	for range 100 {
		br := Reader(strings.NewReader("a secret of somebody else"))
		if _, err := br.ReadByte(); err != nil {
			t.Fatal(err)
		}
		FreeReader(br)
		br = Reader(strings.NewReader("mine"))
		if got, err := io.ReadAll(br); err != nil || string(got) != "mine" {
			t.Fatalf("read %q, %v", got, err)
		}
		FreeReader(br)

		var other, mine strings.Builder
		bw := Writer(&other)
		bw.WriteString("not flushed")
		FreeWriter(bw)
		bw = Writer(&mine)
		bw.WriteString("mine")
		if err := bw.Flush(); err != nil || mine.String() != "mine" || other.String() != "" {
			t.Fatalf("wrote %q and %q, %v", mine.String(), other.String(), err)
		}
		FreeWriter(bw)
	}
}

// TestABufferAfterAnError: a writer whose destination failed works for the next user.
func TestABufferAfterAnError(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	bw := Writer(w)
	bw.WriteString("lost")
	if bw.Flush() == nil {
		t.Fatal("no error of a closed pipe")
	}
	FreeWriter(bw)
	var mine strings.Builder
	bw.Reset(&mine)
	bw.WriteString("mine")
	if err := bw.Flush(); err != nil || mine.String() != "mine" {
		t.Errorf("wrote %q, %v", mine.String(), err)
	}
}

// TestABufferIsEmpty: a pooled buffer is empty for the next user, and one that has grown large is
// not pooled.
func TestABufferIsEmpty(t *testing.T) {
	for size := range 100 {
		b := Bytes()
		if b.Len() != 0 || b.Cap() > maxPooled {
			t.Fatalf("a buffer of %d bytes, with room for %d", b.Len(), b.Cap())
		}
		b.WriteString(strings.Repeat("a secret", 1<<10*size))
		FreeBytes(b)
	}
}

// TestCopy: all data is copied, for any size of reads, through a pooled buffer and not by methods
// of the writer or the reader, and errors of both are returned.
func TestCopy(t *testing.T) {
	text := strings.Repeat("what is copied ", 10_000)
	for _, r := range []io.Reader{
		strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text)),
		io.MultiReader(strings.NewReader(text[:7]), strings.NewReader(text[7:])),
	} {
		var out strings.Builder
		if n, err := Copy(&out, r); err != nil || n != int64(len(text)) || out.String() != text {
			t.Errorf("%T: %d bytes, %v", r, n, err)
		}
	}
	broken := errors.New("broken")
	if n, err := Copy(io.Discard, io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken))); n != 3 || !errors.Is(err, broken) {
		t.Errorf("of a reader: %d bytes, %v", n, err)
	}
	reader, writer := io.Pipe()
	reader.CloseWithError(broken)
	if _, err := Copy(writer, strings.NewReader(text)); !errors.Is(err, broken) {
		t.Errorf("of a writer: %v", err)
	}
}
