package rowform

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

type part struct {
	Name string
	N    int
}

func (p *part) fields(c *Coder) {
	c.String(&p.Name)
	Int(c, &p.N)
}

type record struct {
	Text  string
	Raw   []byte
	N     int64
	Small uint16
	Yes   bool
	At    time.Time
	Parts []part
	Names []string
}

func (r *record) fields(c *Coder) {
	c.Version(1)
	c.String(&r.Text)
	c.Bytes(&r.Raw)
	Int(c, &r.N)
	Int(c, &r.Small)
	c.Bool(&r.Yes)
	c.Time(&r.At)
	List(c, &r.Parts, (*part).fields)
	List(c, &r.Names, func(s *string, c *Coder) { c.String(s) })
}

// later is record as a version might have it that added a field.
type later struct {
	record
	More string
}

func (r *later) fields(c *Coder) {
	r.record.fields(c)
	c.String(&r.More)
}

var (
	records = Records{SumOf("b"), newRecord, func(r any, c *Coder) { r.(*record).fields(c) }}
	laters  = Records{SumOf("b"), func() any { return new(later) }, func(r any, c *Coder) { r.(*later).fields(c) }}
	texts   = Records{Sum: SumOf("b"), New: newRecord}
)

func newRecord() any { return new(record) }

func TestRecordsAreReadAsWritten(t *testing.T) {
	for _, want := range []record{
		{},
		{Text: "a", Raw: []byte{0}, N: math.MinInt64, Small: math.MaxUint16, Yes: true, At: time.Unix(1, 2).UTC(), Parts: []part{{"x", -1}, {}}, Names: []string{"", "n", ""}},
		{Text: "\x00\x00", At: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), N: math.MaxInt64},
		{At: time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC), Names: []string{""}},
		{Text: strings.Repeat("x", 1000), Parts: []part{{}, {}}},
	} {
		for _, r := range []*Records{&records, &texts} {
			row, err := r.Row([]byte("key"), &want)
			if err != nil {
				t.Fatal(err)
			}
			have, err := r.Record([]byte("key"), row)
			if err != nil || !reflect.DeepEqual(have, &want) {
				t.Errorf("wrote %+v, read %+v, %v", want, have, err)
			}
			for at := range row {
				for bit := byte(1); bit != 0; bit <<= 1 {
					row[at] ^= bit
					if have, err := r.Record([]byte("key"), row); !errors.Is(err, ErrDamaged) {
						t.Errorf("bit %02x of byte %d: %+v, %v", bit, at, have, err)
					}
					row[at] ^= bit
				}
			}
			other := Records{SumOf("other"), newRecord, r.Fields}
			if _, err := other.Record([]byte("key"), row); !errors.Is(err, ErrDamaged) {
				t.Errorf("a row of another bucket: %v", err)
			}
		}
	}
}

// TestPayloadIsThePlaceOfTheTexts: a payload lies in its row, has the texts, and is verified.
func TestPayloadIsThePlaceOfTheTexts(t *testing.T) {
	rec := record{Text: "tëxt", Raw: []byte{1}, N: 7, Parts: []part{{"part", 1}}, Names: []string{"name"}}
	for _, r := range []*Records{&records, &texts} {
		row, err := r.Row([]byte("key"), &rec)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := r.Payload([]byte("key"), row)
		if err != nil || &payload[0] != &row[1] || len(payload) != len(row)-1-SumSize {
			t.Fatalf("%q of %q, %v", payload, row, err)
		}
		for _, text := range []string{rec.Text, "part", "name"} {
			if !strings.Contains(string(payload), text) {
				t.Errorf("%q is not in %q", text, payload)
			}
		}
		for at := range row {
			row[at] ^= 4
			if _, err := r.Payload([]byte("key"), row); !errors.Is(err, ErrDamaged) {
				t.Errorf("byte %d is another one: %v", at, err)
			}
			row[at] ^= 4
		}
		if _, err := r.Payload([]byte("other"), row); !errors.Is(err, ErrDamaged) {
			t.Errorf("a row of another key: %v", err)
		}
		old := []byte(`{"Text":"old"}`)
		if payload, err := r.Payload([]byte("key"), old); err != nil || string(payload) != string(old) {
			t.Errorf("%q, %v", payload, err)
		}
		if _, err := r.Payload([]byte("key"), r.Sum.Seal([]byte("key"), []byte{3, 1})); !errors.Is(err, ErrNewer) {
			t.Errorf("a form to come: %v", err)
		}
	}
}

// TestFieldsMayBeAdded: a later version reads rows from before the field, and says nothing of it
// where it is zero; an earlier one refuses a row with the field.
func TestFieldsMayBeAdded(t *testing.T) {
	want := record{Text: "a", Names: []string{"n"}}
	row, err := records.Row(nil, &want)
	if err != nil {
		t.Fatal(err)
	}
	read, err := laters.Record(nil, row)
	if err != nil || !reflect.DeepEqual(read, &later{record: want}) {
		t.Errorf("%+v, %v", read, err)
	}
	row, err = laters.Row(nil, read)
	if err != nil {
		t.Fatal(err)
	}
	if have, err := records.Record(nil, row); err != nil || !reflect.DeepEqual(have, &want) {
		t.Errorf("%+v, %v", have, err)
	}
	read.(*later).More = "more"
	row, err = laters.Row(nil, read)
	if err != nil {
		t.Fatal(err)
	}
	if have, err := records.Record(nil, row); !errors.Is(err, ErrNewer) {
		t.Errorf("%+v, %v", have, err)
	}
}

func TestTimesOfNoCalendarAreRefused(t *testing.T) {
	for _, at := range []time.Time{time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if _, err := records.Row(nil, &record{At: at}); err == nil {
			t.Errorf("%v was written", at)
		}
	}
	zone := time.FixedZone("", 3600)
	row, err := records.Row(nil, &record{At: time.Date(2026, 1, 1, 0, 0, 0, 0, zone)})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := records.Record(nil, row); err != nil || !r.(*record).At.Equal(time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzFields reads any bytes as fields: what is read is written and read as the same.
func FuzzFields(f *testing.F) {
	for _, r := range []record{{}, {Text: "a", Raw: []byte{0}, N: -1, Yes: true, At: time.Unix(1, 2), Parts: []part{{"x", 1}}, Names: []string{""}}} {
		row, err := records.Row(nil, &r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(row[1 : len(row)-SumSize])
	}
	f.Fuzz(func(t *testing.T, fields []byte) {
		first, err := records.Record(nil, records.Sum.Seal(nil, append([]byte{formFields}, fields...)))
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Errorf("error %v", err)
			}
			return
		}
		row, err := records.Row(nil, first)
		if err != nil {
			t.Fatalf("%+v: %v", first, err)
		}
		if second, err := records.Record(nil, row); err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("read %+v, written again %+v, %v", first, second, err)
		}
	})
}
