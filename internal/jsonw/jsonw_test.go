package jsonw

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

type inner struct {
	Text  string `json:"text"`
	Plain int
	no    bool
}

type outer struct {
	Embedded
	Name   string            `json:"name"`
	Many   []inner           `json:"many"`
	Texts  []string          `json:"texts,omitempty"`
	Map    map[string]inner  `json:"map"`
	Values map[string]string `json:"values,omitempty"`
	Raw    json.RawMessage   `json:"raw"`
	Bytes  []byte            `json:"bytes"`
	When   *time.Time        `json:"when"`
	Any    any               `json:"any"`
	Left   string            `json:"-"`
}

// Embedded is an embedded struct. It is exported, like all types that are written this way.
type Embedded struct {
	Below *string `json:"below"`
}

func drawText(r *rand.Rand) string {
	unit := []string{"a", "é", "😀", "<&>\u2028", "\xff", "\x80", "\xf0\x9f", "\x00\"\\"}[r.IntN(8)]
	return strings.Repeat("x", r.IntN(4)) + strings.Repeat(unit, []int{0, 1, 5, pieceSize - 1, pieceSize, 3 * pieceSize}[r.IntN(6)])
}

// TestWriteIsAsMarshal: the output equals that of encoding/json, and is written in pieces of
// limited size.
func TestWriteIsAsMarshal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	text, now := "below", time.Now()
	for i := range 60 {
		v := outer{Name: drawText(r), Left: "left", Raw: json.RawMessage(`{"a":[1]}`), Any: map[string]any{"x": nil}}
		for range r.IntN(3) {
			v.Many = append(v.Many, inner{Text: drawText(r), Plain: r.IntN(9), no: true})
			v.Texts = append(v.Texts, drawText(r))
		}
		if r.IntN(2) == 0 {
			v.Map, v.Values = map[string]inner{"b": {}, "a<": {Text: drawText(r)}, "": {}}, map[string]string{}
			v.Below, v.When, v.Bytes = &text, &now, []byte("bytes")
		}
		for _, v := range []any{v, &v, []outer{v}, nilPointer(), drawText(r), 5} {
			want, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			got := &pieces{}
			if err := Write(got, v); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.all.Bytes(), want) {
				t.Fatalf("value %d is written as\n%.300q, not\n%.300q", i, got.all.Bytes(), want)
			}
			if got.most > 6*pieceSize+2 {
				t.Fatalf("%d bytes were written at once", got.most)
			}
		}
	}
}

func nilPointer() *outer { return nil }

type pieces struct {
	all  bytes.Buffer
	most int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.most = max(p.most, len(b))
	return p.all.Write(b)
}

// failing is a writer that fails after a number of writes.
type failing int

var errFull = errors.New("it is full")

func (f *failing) Write(b []byte) (int, error) {
	if *f--; *f < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteTellsErrors(t *testing.T) {
	v := outer{Name: "n", Many: []inner{{}, {}}, Map: map[string]inner{"a": {}}}
	for n := range 40 {
		f := failing(n)
		if err := Write(&f, v); !errors.Is(err, errFull) {
			t.Fatalf("after %d writes the error is %v", n, err)
		}
	}
	if err := Write(&pieces{}, map[string]any{"a": func() {}}); err == nil {
		t.Error("a function is written")
	}
}
