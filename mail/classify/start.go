package classify

import (
	"cmp"
	_ "embed" // for the start set
	"encoding/binary"
	"math"
	"slices"
	"sync"
)

//go:generate go run ./corpus/generate

//go:embed start.bin
var startFile string

// A StartToken is a token of the start set, with the shares of junk mail and of wanted mail that
// contain it.
type StartToken struct {
	Token     Token
	Spam, Ham float64 // from 0 to 1
}

// An encoded start set has a row of six bytes for each token, sorted: the upper half of the token,
// and the two shares on a logarithmic scale.
const (
	startRow   = 6
	shareSteps = 255
	shareScale = 8 // range of the scale in natural logarithms
)

// EncodeStart returns a start set in encoded form.
func EncodeStart(list []StartToken) []byte {
	list = slices.SortedFunc(slices.Values(list), func(a, b StartToken) int { return cmp.Compare(a.Token, b.Token) })
	var out []byte
	for i, t := range list {
		if i > 0 && t.Token>>32 == list[i-1].Token>>32 {
			continue // two tokens have the same upper half, which is rare among a few thousand tokens: drop one
		}
		out = binary.BigEndian.AppendUint32(out, uint32(t.Token>>32))
		out = append(out, encodeShare(t.Spam), encodeShare(t.Ham))
	}
	return out
}

func encodeShare(share float64) byte {
	if share <= 0 {
		return 0
	}
	return byte(max(1, min(shareSteps, math.Round(shareSteps*(1+math.Log(share)/shareScale)))))
}

func decodeShare(b byte) float64 {
	if b == 0 {
		return 0
	}
	return math.Exp((float64(b)/shareSteps - 1) * shareScale)
}

// A startSet is a decoded start set, with an index of its rows by the first bits of a token.
type startSet struct {
	rows   string
	first  [1<<startBits + 1]uint16 // index of the first row for each value of the first bits
	shares [256]float64
}

const startBits = 12

var startSetOnce = sync.OnceValue(func() *startSet {
	s := &startSet{rows: startFile}
	at := 0
	for beginning := range len(s.first) {
		for at < len(s.rows)/startRow && int(s.token(at)>>(32-startBits)) < beginning {
			at++
		}
		s.first[beginning] = uint16(at)
	}
	for b := range s.shares {
		s.shares[b] = decodeShare(byte(b))
	}
	return s
})

func (s *startSet) token(row int) uint32 {
	b := s.rows[row*startRow:]
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// get returns the shares of junk mail and of wanted mail that contain a token. Both are 0 for an
// unknown token.
func (s *startSet) get(t Token) (spam, ham float64) {
	half := uint32(t >> 32)
	beginning := half >> (32 - startBits)
	for row := s.first[beginning]; row < s.first[beginning+1]; row++ {
		if s.token(int(row)) == half {
			b := s.rows[int(row)*startRow:]
			return s.shares[b[4]], s.shares[b[5]]
		}
	}
	return 0, 0
}
