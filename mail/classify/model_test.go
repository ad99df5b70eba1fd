package classify

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// contents are the counts of a model.
func contents(m *Model) map[Token]Count {
	out := map[Token]Count{}
	for _, s := range m.slots {
		if s.token != 0 {
			out[s.token] = s.count
		}
	}
	return out
}

// TestModelAgainstAMap does random operations on a model and on a plain map.
func TestModelAgainstAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	m, twin := NewModel(), map[Token]Count{}
	var spam, ham uint32
	pool := make([]Token, 600)
	for i := range pool {
		pool[i] = Token(r.Uint64() | 1)
		if i%3 == 0 {
			pool[i] = Token(i + 1) // neighbours
		}
	}
	for step := range 20000 {
		switch r.IntN(10) {
		case 0, 1:
			token, c := pool[r.IntN(len(pool))], Count{Spam: uint16(r.IntN(3)), Ham: uint16(r.IntN(3)), Day: uint16(r.IntN(5))}
			if r.IntN(20) == 0 {
				c.Spam = 65535
			}
			m.Set(token, c)
			twin[token] = c
			if c.Spam == 0 && c.Ham == 0 {
				delete(twin, token)
			}
		case 2:
			m = m.Clone()
		default:
			var tokens []Token
			for _, i := range r.Perm(len(pool))[:r.IntN(20)] {
				tokens = append(tokens, pool[i])
			}
			isSpam, undo, day := r.IntN(2) == 0, r.IntN(2) == 0, uint16(r.IntN(5))
			var want []Token
			for _, token := range tokens {
				before := twin[token]
				c := before
				n := &c.Ham
				if isSpam {
					n = &c.Spam
				}
				if undo && *n > 0 {
					*n--
				} else if !undo {
					if *n < 65535 {
						*n++
					}
					c.Day = day
				}
				if c != before {
					want = append(want, token)
				}
				twin[token] = c
				if c.Spam == 0 && c.Ham == 0 {
					delete(twin, token)
				}
			}
			messages := &ham
			if isSpam {
				messages = &spam
			}
			if !undo {
				*messages++
			} else if *messages > 0 {
				*messages--
			}
			if got := m.Train(tokens, isSpam, undo, day); !slices.Equal(got, want) {
				t.Fatalf("step %d: %d tokens changed, want %d", step, len(got), len(want))
			}
		}
		if m.Len() != len(twin) || m.Spam != spam || m.Ham != ham {
			t.Fatalf("step %d: %d tokens, %d spam, %d ham; want %d, %d, %d", step, m.Len(), m.Spam, m.Ham, len(twin), spam, ham)
		}
		if step%50 == 0 && !maps.Equal(contents(m), twin) {
			t.Fatalf("step %d: the model differs", step)
		}
		for range 5 {
			if token := pool[r.IntN(len(pool))]; m.Get(token) != twin[token] {
				t.Fatalf("step %d: token %x has %v, want %v", step, token, m.Get(token), twin[token])
			}
		}
	}
}

// TestUndoRestoresAModel: what was taught and taken back, in any order, leaves no trace but days.
func TestUndoRestoresAModel(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	m := NewModel()
	message := func() (tokens []Token) {
		for range 1 + r.IntN(100) {
			if token := Token(1 + r.IntN(2000)); !slices.Contains(tokens, token) {
				tokens = append(tokens, token)
			}
		}
		return tokens
	}
	for range 50 {
		m.Train(message(), r.IntN(2) == 0, false, 7)
	}
	before := m.Clone()
	type lesson struct {
		tokens []Token
		spam   bool
	}
	var lessons []lesson
	for range 200 {
		l := lesson{message(), r.IntN(2) == 0}
		lessons = append(lessons, l)
		m.Train(l.tokens, l.spam, false, 7)
	}
	r.Shuffle(len(lessons), func(i, j int) { lessons[i], lessons[j] = lessons[j], lessons[i] })
	for _, l := range lessons {
		m.Train(l.tokens, l.spam, true, 9)
	}
	if m.Spam != before.Spam || m.Ham != before.Ham || !maps.Equal(contents(m), contents(before)) {
		t.Error("the model is not what it was")
	}
}

func TestCloneSharesNothing(t *testing.T) {
	m := NewModel()
	m.Train([]Token{1, 2}, true, false, 1)
	c := m.Clone()
	c.Train([]Token{1}, true, false, 1)
	if m.Get(1).Spam != 1 || c.Get(1).Spam != 2 || m.Spam != 1 {
		t.Error("a change of the clone changed the model")
	}
}

// TestLeastUsed compares with sorting all, for every number of tokens to forget.
func TestLeastUsed(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	m := NewModel()
	var all []slot
	for range 300 {
		s := slot{Token(r.Uint64() | 1), Count{Spam: uint16(1 + r.IntN(3)), Ham: uint16(r.IntN(3)), Day: uint16(r.IntN(4))}}
		all = append(all, s)
		m.Set(s.token, s.count)
	}
	slices.SortFunc(all, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.count.Spam+a.count.Ham, b.count.Spam+b.count.Ham), cmp.Compare(a.count.Day, b.count.Day), cmp.Compare(a.token, b.token))
	})
	for n := range 302 {
		got := m.LeastUsed(n)
		if len(got) != min(n, 300) {
			t.Fatalf("%d of %d tokens", len(got), n)
		}
		for i, token := range got {
			if token != all[i].token {
				t.Fatalf("of %d, token %d is %x, want %x", n, i, token, all[i].token)
			}
		}
	}
}

// TestModelIsCompact: an account's full model takes no more than 32 bytes for a token.
func TestModelIsCompact(t *testing.T) {
	m := NewModel()
	for i := range 200_000 {
		m.Set(Token(rand.Uint64()|1), Count{Spam: 1, Day: uint16(i)})
	}
	t.Logf("%d tokens take %d bytes", m.Len(), m.Bytes())
	if m.Bytes() > 4<<20+1<<10 {
		t.Errorf("%d tokens take %d bytes", m.Len(), m.Bytes())
	}
}
