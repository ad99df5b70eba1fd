package buffers

import (
	"io"
	"strings"
	"testing"
)

// TestNothingOfTheOneBefore: a borrower sees nothing of what passed through a buffer before, nor
// does what was left in one go anywhere.
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

// TestABufferAfterAnError: a writer whose destination failed serves the next one.
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
