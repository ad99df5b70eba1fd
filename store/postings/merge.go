package postings

import (
	"bytes"
	"cmp"
	"slices"
)

// PlaceSize is the size of a Place.
const PlaceSize = 16

// A Place tells where a message stands among those of its account, whatever run has it. Those of a
// run fall.
type Place [PlaceSize]byte

// Words are the words of one run in their order.
type Words interface {
	Next() (bool, error) // moves to the next word; false behind the last
	Entry() *Entry       // the word that Next has moved to
}

// A Part is one run of those that become one.
type Part struct {
	Words  Words
	Places []Place // of its messages

	numbers []uint16 // in the new run, of each message of this one; gone if it is in none
	more    bool
}

// gone is the number of a message that the new run does not have.
const gone = ^uint16(0)

// Merge makes one run of several: the places of its messages, and its blocks, with how many bytes
// these have together. Messages that keep refuses are left out. Where several parts have one place,
// the last of them counts. All messages together are fewer than 65 535.
func Merge(parts []*Part, keep func(Place) bool) (places []Place, blocks []Block, size int64, err error) {
	for _, p := range parts {
		p.more, err = p.Words.Next()
		if err != nil {
			return nil, nil, 0, err
		}
	}
	places = renumber(parts, keep)
	if len(places) == 0 {
		return nil, nil, 0, nil
	}
	var w BlockWriter
	for {
		word, numbers, err := mergeWord(parts, len(places))
		if err != nil {
			return nil, nil, 0, err
		}
		if word == nil {
			break
		}
		if len(numbers) > 0 {
			w.Add(word, numbers)
		}
	}
	blocks, size = w.Finish()
	return places, blocks, size, nil
}

// renumber puts the messages that are kept into their order, and sets the parts' numbers.
func renumber(parts []*Part, keep func(Place) bool) (places []Place) {
	type doc struct {
		place Place
		part  int
		n     int
	}
	var docs []doc
	for i, p := range parts {
		p.numbers = make([]uint16, len(p.Places))
		for n, place := range p.Places {
			p.numbers[n] = gone
			if keep(place) {
				docs = append(docs, doc{place, i, n})
			}
		}
	}
	slices.SortFunc(docs, func(a, b doc) int {
		return cmp.Or(bytes.Compare(b.place[:], a.place[:]), cmp.Compare(b.part, a.part))
	})
	for i, x := range docs {
		if i > 0 && x.place == docs[i-1].place {
			continue
		}
		parts[x.part].numbers[x.n] = uint16(len(places))
		places = append(places, x.place)
	}
	return places
}

// mergeWord takes the lowest word off the parts that have it; nil if there is none.
func mergeWord(parts []*Part, docs int) (word []byte, numbers []uint16, err error) {
	for _, p := range parts {
		if p.more && (word == nil || bytes.Compare(p.Words.Entry().Word, word) < 0) {
			word = p.Words.Entry().Word
		}
	}
	word = bytes.Clone(word)
	if word == nil {
		return nil, nil, nil
	}
	for _, p := range parts {
		if !p.more || !bytes.Equal(p.Words.Entry().Word, word) {
			continue
		}
		err := p.Words.Entry().Each(len(p.Places), func(n uint32) {
			if to := p.numbers[n]; to != gone {
				numbers = append(numbers, to)
			}
		})
		if err != nil {
			return nil, nil, err
		}
		p.more, err = p.Words.Next()
		if err != nil {
			return nil, nil, err
		}
	}
	return word, sortNumbers(numbers, docs), nil
}

// sortNumbers sorts numbers below docs that differ; many by marking them.
func sortNumbers(numbers []uint16, docs int) []uint16 {
	if slices.IsSorted(numbers) {
		return numbers
	}
	if len(numbers) < docs/64 {
		slices.Sort(numbers)
		return numbers
	}
	set := NewSet(docs)
	for _, n := range numbers {
		set.Add(uint32(n))
	}
	numbers = numbers[:0]
	for n, ok := set.From(0); ok; n, ok = set.From(n + 1) {
		numbers = append(numbers, uint16(n))
	}
	return numbers
}
