package postings

import (
	"bytes"
	"cmp"
	"slices"
)

// PlaceSize is the size of a Place in bytes.
const PlaceSize = 16

// A Place is the position of a message in the order of its account's messages, the same in every
// run. The places of a run descend.
type Place [PlaceSize]byte

// Words iterates over the words of one run in sorted order.
type Words interface {
	Next() (bool, error) // moves to the next word; false after the last
	Entry() *Entry       // the word that Next has moved to
}

// A Part is one of the runs to be merged.
type Part struct {
	Words  Words
	Places []Place // of its messages

	numbers []uint16 // for each message of this run its number in the new run, or notInRun
	hasWord bool     // Words is at a word, not after the last
}

// notInRun stands for a message that is not in the new run.
const notInRun = ^uint16(0)

// Merge merges several runs into one. It returns the places of the messages, the blocks, and the
// blocks' total size in bytes. Messages for which keep returns false are left out. If several parts
// have the same place, the last part is used. The parts must have fewer than 65 535 messages
// together.
func Merge(parts []*Part, keep func(Place) bool) (places []Place, blocks []Block, size int64, err error) {
	for _, p := range parts {
		p.hasWord, err = p.Words.Next()
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

// renumber returns the places of the kept messages in their order, and sets the parts' numbers.
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
			p.numbers[n] = notInRun
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

// mergeWord returns the lowest word of all parts, with its new numbers, and moves the parts that
// have it to their next word. word is nil if no word is left.
func mergeWord(parts []*Part, docs int) (word []byte, numbers []uint16, err error) {
	for _, p := range parts {
		if p.hasWord && (word == nil || bytes.Compare(p.Words.Entry().Word, word) < 0) {
			word = p.Words.Entry().Word
		}
	}
	word = bytes.Clone(word)
	if word == nil {
		return nil, nil, nil
	}
	for _, p := range parts {
		if !p.hasWord || !bytes.Equal(p.Words.Entry().Word, word) {
			continue
		}
		err := p.Words.Entry().Each(len(p.Places), func(n uint32) {
			if to := p.numbers[n]; to != notInRun {
				numbers = append(numbers, to)
			}
		})
		if err != nil {
			return nil, nil, err
		}
		p.hasWord, err = p.Words.Next()
		if err != nil {
			return nil, nil, err
		}
	}
	return word, sortNumbers(numbers, docs), nil
}

// sortNumbers sorts distinct numbers below docs; if there are many, it does so with a bit set.
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
