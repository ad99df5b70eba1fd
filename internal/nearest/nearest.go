// Package nearest finds the name that a person probably meant when they mistyped it. It does not
// know what the names are for.
package nearest

import (
	"slices"
	"strings"
)

// maxWord is the maximum length in bytes of a word that is compared with names.
const maxWord = 300

// Name returns the one of names that word was probably meant to be, or "" if none is near. Letter
// case does not matter, and neither does the difference between "-" and "_". A word is near a name
// if at most a third of its letters are wrong, missing, too many or swapped, or if it is the
// beginning (at least three letters) of that name alone.
func Name(word string, names []string) string {
	plain := normalize(word)
	if plain == "" || len(plain) > maxWord {
		return ""
	}
	most := max(1, len([]rune(plain))/3)
	best, bestDistance := "", most+1
	var begins []string
	for _, name := range names {
		other := normalize(name)
		if d := distance(plain, other, bestDistance); d < bestDistance {
			best, bestDistance = name, d
		}
		if len(plain) >= 3 && strings.HasPrefix(other, plain) && !slices.Contains(begins, name) {
			begins = append(begins, name)
		}
	}
	if best == "" && len(begins) == 1 {
		return begins[0]
	}
	return best
}

func normalize(word string) string { return strings.ReplaceAll(strings.ToLower(word), "_", "-") }

// distance returns how many letters must be replaced, inserted, deleted or swapped with the next
// one to make a of b (the optimal string alignment distance), or enough if that many do not
// suffice.
func distance(a, b string, enough int) int {
	x, y := []rune(a), []rune(b)
	if len(x)-len(y) >= enough || len(y)-len(x) >= enough {
		return enough
	}
	before, last := []int(nil), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row := make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return min(last[len(y)], enough)
}
