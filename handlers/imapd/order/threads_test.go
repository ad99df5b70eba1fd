package order

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cputime"
)

// A node is a message in the model, or a dummy: message -1.
type node struct {
	message  int
	parent   *node
	children []*node
}

func (n *node) hang(parent *node) {
	if n.parent != nil {
		n.parent.children = slices.DeleteFunc(n.parent.children, func(c *node) bool { return c == n })
	}
	n.parent = parent
	if parent != nil {
		parent.children = append(parent.children, n)
	}
}

func (n *node) under(other *node) bool {
	for ; n != nil; n = n.parent {
		if n == other {
			return true
		}
	}
	return false
}

// model threads messages by REFERENCES, step by step as in RFC 5256 section 3.
func model(list []Message) string {
	less := func(a, b *node) int {
		return cmp.Or(cmp.Compare(list[a.message].Sent, list[b.message].Sent), cmp.Compare(a.message, b.message))
	}
	// A dummy counts as its first child.
	oldest := func(n *node) *node {
		if n.message < 0 {
			return slices.MinFunc(n.children, less)
		}
		return n
	}
	sorted := func(nodes []*node) []*node {
		nodes = slices.Clone(nodes)
		slices.SortFunc(nodes, func(a, b *node) int { return less(oldest(a), oldest(b)) })
		return nodes
	}
	valid := func(ids [][]byte) (out []string) {
		for _, id := range ids {
			if bytes.Contains(id, []byte("@")) {
				out = append(out, strings.ReplaceAll(string(id), `"`, ""))
			}
		}
		return out
	}
	byID := map[string]*node{}
	var all []*node
	get := func(id string) *node {
		if byID[id] == nil {
			byID[id] = &node{message: -1}
			all = append(all, byID[id])
		}
		return byID[id]
	}
	for i, m := range list { // step (1)
		ids := valid(m.References)
		if len(ids) == 0 {
			ids = valid(m.InReplyTo)
			if len(ids) > 1 {
				ids = ids[:1]
			}
		}
		var last *node
		for _, id := range ids {
			n := get(id)
			if last != nil && n.parent == nil && !last.under(n) {
				n.hang(last)
			}
			last = n
		}
		own := valid([][]byte{m.ID})
		if len(own) == 0 || byID[own[0]] != nil && byID[own[0]].message >= 0 {
			own = []string{fmt.Sprint("unique ", i)}
		}
		n := get(own[0])
		n.message = i
		if n.parent != last {
			n.hang(nil)
			if last != nil && !last.under(n) {
				n.hang(last)
			}
		}
	}
	root := &node{message: -1}
	for _, n := range all { // step (2)
		if n.parent == nil {
			n.hang(root)
		}
	}
	var prune func(n *node)
	prune = func(n *node) { // step (3)
		for _, c := range slices.Clone(n.children) {
			prune(c)
		}
		if n == root || n.message >= 0 {
			return
		}
		if len(n.children) == 0 || n.parent != root || len(n.children) == 1 {
			for _, c := range slices.Clone(n.children) {
				c.hang(n.parent)
			}
			n.hang(nil)
		}
	}
	prune(root)
	threads := sorted(root.children) // step (4)
	subject := func(n *node) (base string, isReply bool) {
		b, isReply := AppendBaseSubject(nil, list[oldest(n).message].Subject)
		return string(b), isReply
	}
	table := map[string]*node{}
	for _, n := range threads { // step (5)
		base, isReply := subject(n)
		if base == "" {
			continue
		}
		other := table[base]
		if other == nil {
			table[base] = n
			continue
		}
		_, otherReply := subject(other)
		if other.message >= 0 && (n.message < 0 || otherReply && !isReply) {
			table[base] = n
		}
	}
	for _, n := range threads {
		base, isReply := subject(n)
		other := table[base]
		if base == "" || other == n || n.parent != root {
			continue
		}
		_, otherReply := subject(other)
		switch {
		case n.message < 0 && other.message < 0:
			for _, c := range slices.Clone(n.children) {
				c.hang(other)
			}
			n.hang(nil)
		case other.message < 0, isReply && !otherReply:
			n.hang(other)
		default:
			dummy := &node{message: -1}
			dummy.hang(root)
			n.hang(dummy)
			other.hang(dummy)
			table[base] = dummy
		}
	}
	var out strings.Builder
	var write func(n *node)
	write = func(n *node) {
		if n.message >= 0 {
			fmt.Fprint(&out, list[n.message].Number)
		}
		children := sorted(n.children) // step (6)
		if len(children) > 0 && n.message >= 0 {
			out.WriteString(" ")
		}
		if len(children) == 1 {
			write(children[0])
			return
		}
		for _, c := range children {
			out.WriteString("(")
			write(c)
			out.WriteString(")")
		}
	}
	for _, n := range sorted(root.children) {
		out.WriteString("(")
		write(n)
		out.WriteString(")")
	}
	return out.String()
}

// modelByText collects each equal base subject.
func modelByText(list []Message) string {
	groups := map[string][]int{}
	for i, m := range list {
		b, _ := AppendBaseSubject(nil, m.Subject)
		groups[string(b)] = append(groups[string(b)], i)
	}
	less := func(a, b int) int { return cmp.Or(cmp.Compare(list[a].Sent, list[b].Sent), cmp.Compare(a, b)) }
	var threads [][]int
	for _, g := range groups {
		slices.SortFunc(g, less)
		threads = append(threads, g)
	}
	slices.SortFunc(threads, func(a, b []int) int { return less(a[0], b[0]) })
	var out strings.Builder
	for _, g := range threads {
		fmt.Fprintf(&out, "(%d", list[g[0]].Number)
		if len(g) == 2 {
			fmt.Fprintf(&out, " %d", list[g[1]].Number)
		} else if len(g) > 2 {
			out.WriteString(" ")
			for _, i := range g[1:] {
				fmt.Fprintf(&out, "(%d)", list[i].Number)
			}
		}
		out.WriteString(")")
	}
	return out.String()
}

func threadsOf(byIDs bool, list []Message) string {
	t := NewThreads(byIDs, len(list))
	for i := range list {
		t.Add(&list[i])
	}
	if byIDs {
		return string(t.AppendReferences(nil))
	}
	return string(t.AppendOrderedSubject(nil))
}

// randomMessages refer to each other in every way, often in circles.
func randomMessages(r *rand.Rand) []Message {
	n, ids := 1+r.IntN(25), 2+r.IntN(25)
	id := func() []byte {
		switch k := r.IntN(ids); r.IntN(12) {
		case 0:
			return []byte("<without>")
		case 1:
			return fmt.Appendf(nil, `<"%d"@x>`, k)
		default:
			return fmt.Appendf(nil, "<%d@x>", k)
		}
	}
	subjects := []string{"", "a", "Re: a", "b", "Re: b", "[x] a", "fwd: c", "c (fwd)", "re:", "d"}
	list := make([]Message, n)
	for i := range list {
		m := &list[i]
		m.Number = uint32(i + 1)
		m.Sent = int64(r.IntN(10))
		m.Subject = []byte(subjects[r.IntN(len(subjects))])
		if r.IntN(10) > 0 {
			m.ID = id()
		}
		for range r.IntN(5) * r.IntN(2) {
			m.References = append(m.References, id())
		}
		for range r.IntN(3) {
			m.InReplyTo = append(m.InReplyTo, id())
		}
	}
	return list
}

func TestThreadsAreThoseOfTheModel(t *testing.T) {
	rounds := 30_000
	if testing.Short() {
		rounds = 3_000
	}
	for seed := range uint64(rounds) {
		list := randomMessages(rand.New(rand.NewPCG(seed, 5256)))
		if got, want := threadsOf(true, list), model(list); got != want {
			t.Fatalf("seed %d: REFERENCES gives\n%s, want\n%s\nof %+v", seed, got, want, list)
		}
		if got, want := threadsOf(false, list), modelByText(list); got != want {
			t.Fatalf("seed %d: ORDEREDSUBJECT gives\n%s, want\n%s\nof %+v", seed, got, want, list)
		}
	}
}

// TestHostileThreads takes chains and references that would cost a simple algorithm the square of
// their number, or any memory.
func TestHostileThreads(t *testing.T) {
	const n = 50_000
	id := func(kind string, i int) []byte { return fmt.Appendf(nil, "<%s%d@x>", kind, i) }
	for name, message := range map[string]func(m *Message, i int){
		"one long chain":               func(m *Message, i int) { m.References = [][]byte{id("m", i-1)} },
		"one long chain, newest first": func(m *Message, i int) { m.References = [][]byte{id("m", i+1)} },
		"trees hung deep down": func(m *Message, i int) {
			if i < n/2 {
				m.References = [][]byte{id("m", i-1)}
				return
			}
			m.ID = nil
			m.References = [][]byte{id("m", n/2-1), id("top", i), id("leaf", i)}
			if i%2 == 0 {
				m.References = [][]byte{id("top", i+1), id("leaf", i+1)}
			}
		},
		"a chain of missing ones": func(m *Message, i int) { m.References = [][]byte{id("x", i), id("x", i+1)} },
		"a hundred missing ones each": func(m *Message, i int) {
			for k := range 100 {
				m.References = append(m.References, id("x", i*100+k))
			}
		},
		"all loops":   func(m *Message, i int) { m.References = [][]byte{id("m", i+1), id("m", i), id("m", i-1)} },
		"one subject": func(m *Message, i int) { m.Subject = []byte("the same") },
	} {
		t.Run(name, func(t *testing.T) {
			threads := NewThreads(true, n)
			begun := cputime.Used(t)
			for i := range n {
				m := &Message{Number: uint32(i + 1), Sent: int64(i), ID: id("m", i)}
				message(m, i)
				threads.Add(m)
			}
			if most := sharedDummies + (dummiesPerMessage+1)*n + 1; len(threads.parent) > most {
				t.Errorf("%d nodes, at most %d are allowed", len(threads.parent), most)
			}
			out := threads.AppendReferences(nil)
			took := cputime.Used(t) - begun
			t.Logf("%d nodes, %d ms", len(threads.parent), took.Milliseconds())
			if digits := len(strings.Fields(strings.NewReplacer("(", " ", ")", " ").Replace(string(out)))); digits != n {
				t.Errorf("%d messages are in the threads, want %d", digits, n)
			}
			if took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// FuzzThreads makes messages of any bytes, and compares their threads with the model's.
func FuzzThreads(f *testing.F) {
	f.Add([]byte("1 a|<1@x>|<2@x> <3@x>|\n0 Re: a|<2@x>||<1@x>\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var list []Message
		for line := range bytes.Lines(text) {
			fields := bytes.SplitN(bytes.TrimSpace(line), []byte("|"), 4)
			if len(fields) < 4 || len(fields[0]) == 0 || bytes.ContainsAny(line, `"\`) || len(list) == 50 {
				continue
			}
			list = append(list, Message{
				Number: uint32(len(list) + 1), Sent: int64(fields[0][0]), Subject: fields[0][1:], ID: fields[1],
				References: bytes.Fields(fields[2]), InReplyTo: bytes.Fields(fields[3]),
			})
		}
		for i := range list { // as the reader of messages gives them
			for _, ids := range [][][]byte{{list[i].ID}, list[i].References, list[i].InReplyTo} {
				for _, id := range ids {
					if !bytes.HasPrefix(id, []byte("<")) || !bytes.HasSuffix(id, []byte(">")) || bytes.Count(id, []byte("<")) > 1 {
						return
					}
				}
			}
		}
		if got, want := threadsOf(true, list), model(list); got != want {
			t.Errorf("REFERENCES gives\n%s, want\n%s", got, want)
		}
		if got, want := threadsOf(false, list), modelByText(list); got != want {
			t.Errorf("ORDEREDSUBJECT gives\n%s, want\n%s", got, want)
		}
	})
}
