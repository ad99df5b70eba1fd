package postings

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// blocksOf walks the words of a run's blocks.
type blocksOf struct {
	blocks []Block
	BlockReader
}

func (w *blocksOf) Next() (bool, error) {
	for {
		if more, err := w.BlockReader.Next(); more || err != nil || len(w.blocks) == 0 {
			return more, err
		}
		w.Reset(w.blocks[0].Data)
		w.blocks = w.blocks[1:]
	}
}

// twin is which messages have each word.
type twin map[string]map[Place]bool

func placeOf(n uint64) (p Place) {
	binary.BigEndian.PutUint64(p[:], n)
	return p
}

// write makes a part of the messages, and of the words that the twin says they have.
func (tw twin) write(places []Place) *Part {
	slices.SortFunc(places, func(a, b Place) int { return bytes.Compare(b[:], a[:]) })
	var w BlockWriter
	for _, word := range slices.Sorted(maps.Keys(tw)) {
		var numbers []uint16
		for n, place := range places {
			if tw[word][place] {
				numbers = append(numbers, uint16(n))
			}
		}
		if len(numbers) > 0 {
			w.Add([]byte(word), numbers)
		}
	}
	blocks, _ := w.Finish()
	return &Part{Words: &blocksOf{blocks: blocks}, Places: places}
}

// read gives the twin of a run.
func read(t *testing.T, places []Place, blocks []Block) twin {
	t.Helper()
	found := twin{}
	words := &blocksOf{blocks: blocks}
	last := ""
	for {
		more, err := words.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return found
		}
		word := string(words.Entry().Word)
		if word <= last {
			t.Errorf("word %q comes after %q", word, last)
		}
		last, found[word] = word, map[Place]bool{}
		err = words.Entry().Each(len(places), func(n uint32) { found[word][places[n]] = true })
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestMergeAgreesWithTwin(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		want := twin{}
		var parts []*Part
		left := map[Place]bool{} // that the new run has
		for part := range uint64(1 + rnd.IntN(5)) {
			all := twin{}
			var places []Place
			for n := range uint64(1 + rnd.IntN(2000)) {
				place := placeOf(n*8 + part)
				places = append(places, place)
				keep := rnd.IntN(4) > 0
				if keep {
					left[place] = true
				}
				for range rnd.IntN(8) {
					word := fmt.Sprintf("word%d", int(rnd.ExpFloat64()*40))
					for _, to := range []twin{all, want} {
						if to[word] == nil {
							to[word] = map[Place]bool{}
						}
					}
					all[word][place] = true
					if keep {
						want[word][place] = true
					}
				}
			}
			parts = append(parts, all.write(places))
		}
		maps.DeleteFunc(want, func(_ string, has map[Place]bool) bool { return len(has) == 0 })
		places, blocks, size, err := Merge(parts, func(p Place) bool { return left[p] })
		if err != nil {
			t.Fatal(err)
		}
		if len(places) != len(left) || !slices.IsSortedFunc(places, func(a, b Place) int { return bytes.Compare(b[:], a[:]) }) {
			t.Errorf("seed %d: %d places of %d, or out of order", seed, len(places), len(left))
		}
		if !maps.EqualFunc(read(t, places, blocks), want, maps.Equal[map[Place]bool]) {
			t.Errorf("seed %d: the merged run has other words", seed)
		}
		for _, b := range blocks {
			size -= int64(len(b.Data))
		}
		if size != 0 {
			t.Errorf("seed %d: the size is wrong by %d", seed, size)
		}
	}
}

// TestOfOnePlaceTheLastPartCounts merges runs that have a message of the same place.
func TestOfOnePlaceTheLastPartCounts(t *testing.T) {
	same, other := placeOf(1), placeOf(2)
	before := twin{"old": {same: true}, "both": {same: true, other: true}}
	after := twin{"new": {same: true}, "both": {same: true}}
	parts := []*Part{before.write([]Place{same, other}), after.write([]Place{same})}
	places, blocks, _, err := Merge(parts, func(Place) bool { return true })
	if err != nil || !slices.Equal(places, []Place{other, same}) {
		t.Fatalf("places %v, %v", places, err)
	}
	got := read(t, places, blocks)
	want := twin{"both": {same: true, other: true}, "new": {same: true}}
	if !maps.EqualFunc(got, want, maps.Equal[map[Place]bool]) {
		t.Errorf("got %v", got)
	}
}

func TestMergeOfNothingIsNothing(t *testing.T) {
	run := twin{"word": {placeOf(1): true}}
	places, blocks, size, err := Merge([]*Part{run.write([]Place{placeOf(1)})}, func(Place) bool { return false })
	if len(places) != 0 || len(blocks) != 0 || size != 0 || err != nil {
		t.Errorf("%v, %v, %d, %v", places, blocks, size, err)
	}
}

func TestMergeTellsOfDamage(t *testing.T) {
	for name, data := range map[string][]byte{
		"cut":                    {3, 'a'},
		"number beyond its run":  {1, 'a', 1 * 4, 5},
		"word that shares ahead": {0x31, 'a', 1 * 4, 0},
	} {
		part := &Part{Words: &blocksOf{blocks: []Block{{Data: data}}}, Places: []Place{placeOf(1)}}
		if _, _, _, err := Merge([]*Part{part}, func(Place) bool { return true }); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
