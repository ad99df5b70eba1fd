package order

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"
)

const (
	// Missing referenced messages that are kept for all messages together.
	sharedMissing     = 100_000
	missingPerMessage = 3 // and how many more for each message
)

// Threads collects messages and groups them into threads. It keeps hashes of IDs and subjects, with
// a secret seed. When too many referenced messages are missing, it ignores references to further
// missing ones.
type Threads struct {
	seed     maphash.Seed
	byIDs    bool // THREAD=REFERENCES
	numbers  []uint32
	sent     []int64
	subjects []uint64 // hash for each message; 0: its base subject is empty
	isReply  []bool
	buf      []byte

	// Indexed by node, from 1. A node is a message, or a dummy for a missing one.
	ids         map[uint64]int32
	message     []int32 // 0: a dummy; else the message's index + 1
	parent      []int32 // 0: no parent
	forest      forest  // has the same parents
	nodes       []int32 // the node of each message
	dummiesLeft int     // how many more dummies may be made
}

// NewThreads returns a Threads for about n messages. Call AppendReferences on it if byIDs is set,
// else AppendOrderedSubject.
func NewThreads(byIDs bool, n int) *Threads {
	t := &Threads{
		seed: maphash.MakeSeed(), byIDs: byIDs, dummiesLeft: sharedMissing, numbers: make([]uint32, 0, n),
		sent: make([]int64, 0, n), subjects: make([]uint64, 0, n), isReply: make([]bool, 0, n),
	}
	if byIDs {
		t.ids = make(map[uint64]int32, n)
		t.nodes = make([]int32, 0, n)
		t.newNode(0) // node 0 means no node
	}
	return t
}

func (t *Threads) newNode(message int32) int32 {
	t.message = append(t.message, message)
	t.parent = append(t.parent, 0)
	t.forest.add()
	return int32(len(t.parent) - 1)
}

// Add adds the next message, in mailbox order. It keeps nothing that m points to.
func (t *Threads) Add(m *Message) {
	t.numbers, t.sent = append(t.numbers, m.Number), append(t.sent, m.Sent)
	base, isReply := AppendBaseSubject(t.buf[:0], m.Subject)
	subject := uint64(0)
	if len(base) > 0 {
		subject = max(maphash.Bytes(t.seed, base), 1)
	}
	t.buf = base
	t.subjects, t.isReply = append(t.subjects, subject), append(t.isReply, isReply)
	if t.byIDs {
		t.dummiesLeft += missingPerMessage
		t.linkMessage(m)
	}
}

// linkMessage does step (1) of THREAD=REFERENCES for one message (RFC 5256 section 3). If several
// messages have the same ID, the first one gets it.
func (t *Threads) linkMessage(m *Message) {
	references := m.References
	isID := func(id []byte) bool { return bytes.IndexByte(id, '@') >= 0 }
	if !slices.ContainsFunc(references, isID) {
		references = nil
		if i := slices.IndexFunc(m.InReplyTo, isID); i >= 0 {
			references = m.InReplyTo[i : i+1]
		}
	}
	last := int32(0)
	for _, id := range references {
		if !isID(id) {
			continue
		}
		key := t.idKey(id)
		node, known := t.ids[key]
		switch {
		case known:
		case t.dummiesLeft == 0:
			continue
		default:
			t.dummiesLeft--
			node = t.newNode(0)
			t.ids[key] = node
		}
		if last != 0 && t.parent[node] == 0 {
			t.link(node, last)
		}
		last = node
	}

	index := int32(len(t.numbers))
	var key uint64
	node, hasID := int32(0), isID(m.ID)
	if hasID {
		key = t.idKey(m.ID)
		node = t.ids[key]
	}
	switch {
	case node != 0 && t.message[node] == 0:
		t.message[node] = index
	case hasID && node == 0:
		node = t.newNode(index)
		t.ids[key] = node
	default: // without an ID, or with the ID of another message
		node = t.newNode(index)
	}
	t.nodes = append(t.nodes, node)
	if t.parent[node] != 0 && t.parent[node] != last {
		t.forest.cut(node)
		t.parent[node] = 0
	}
	if last != 0 && t.parent[node] == 0 {
		t.link(node, last)
	}
}

// link makes a root the child of another node, unless that node is below it.
func (t *Threads) link(child, parent int32) {
	if t.forest.root(parent) != child {
		t.forest.link(child, parent)
		t.parent[child] = parent
	}
}

// idKey returns the hash of a message ID, without quotes that its left side does not need (RFC 5256
// section 3).
func (t *Threads) idKey(id []byte) uint64 {
	id = bytes.TrimSuffix(bytes.TrimPrefix(id, []byte("<")), []byte(">"))
	if end := bytes.Index(id, []byte(`"@`)); end > 0 && id[0] == '"' {
		t.buf = t.buf[:0]
		for i := 1; i < end; i++ {
			if id[i] == '\\' && i+1 < end {
				i++
			}
			t.buf = append(t.buf, id[i])
		}
		id = append(t.buf, id[end+1:]...)
		t.buf = id
	}
	return maphash.Bytes(t.seed, id)
}

// bySentDate returns the indexes of all messages by sent date; equal dates are in mailbox order.
func (t *Threads) bySentDate() []uint32 {
	list := make([]uint32, len(t.numbers))
	for i := range list {
		list[i] = uint32(i)
	}
	slices.SortFunc(list, func(a, b uint32) int { return cmp.Or(cmp.Compare(t.sent[a], t.sent[b]), cmp.Compare(a, b)) })
	return list
}

// AppendOrderedSubject appends the threads of THREAD=ORDEREDSUBJECT, as text of the reply.
func (t *Threads) AppendOrderedSubject(b []byte) []byte {
	order := t.bySentDate()
	next := make([]int32, len(order)) // the next message in the thread of each
	last := make(map[uint64]int32, len(order))
	var firsts []int32
	for _, at := range order {
		i := int32(at)
		next[i] = -1
		if before, found := last[t.subjects[i]]; found {
			next[before] = i
		} else {
			firsts = append(firsts, i)
		}
		last[t.subjects[i]] = i
	}
	for _, i := range firsts {
		b = strconv.AppendUint(append(b, '('), uint64(t.numbers[i]), 10)
		child := next[i]
		if child < 0 {
			b = append(b, ')')
			continue
		}
		b = append(b, ' ')
		if next[child] < 0 {
			b = append(strconv.AppendUint(b, uint64(t.numbers[child]), 10), ')')
			continue
		}
		for ; child >= 0; child = next[child] {
			b = append(strconv.AppendUint(append(b, '('), uint64(t.numbers[child]), 10), ')')
		}
		b = append(b, ')')
	}
	return b
}

// AppendReferences appends the threads of THREAD=REFERENCES, as text of the reply.
func (t *Threads) AppendReferences(b []byte) []byte {
	t.ids, t.forest = nil, forest{} // no more links are made
	tree := threadTrees{bySent: t.bySentDate()}
	t.build(&tree) // steps (2) to (4)
	if t.joinSubjects(&tree) {
		t.build(&tree) // step (6)
	}
	return t.appendTrees(b, &tree)
}

// threadTrees are the thread trees. Lists of children are sorted by sent date.
type threadTrees struct {
	bySent []uint32 // indexes of messages
	roots  []int32  // nodes
	first  []int32  // first child of each node; 0: none
	next   []int32  // next sibling of each node
}

// build makes the lists of children. It moves each message to its nearest parent that is a message,
// or else to the topmost dummy (step 3). A message that is alone under such a dummy becomes a root.
func (t *Threads) build(tree *threadTrees) {
	tree.first, tree.next, tree.roots = make([]int32, len(t.parent)), make([]int32, len(t.parent)), tree.roots[:0]
	for _, i := range slices.Backward(tree.bySent) {
		node := t.nodes[i]
		if parent := t.liveParent(node); parent != 0 {
			tree.next[node], tree.first[parent] = tree.first[parent], node
		}
	}
	// A dummy takes the position of its first child.
	for _, i := range tree.bySent {
		node := t.nodes[i]
		parent := t.parent[node]
		switch {
		case parent == 0:
			tree.roots = append(tree.roots, node)
		case t.message[parent] != 0 || tree.first[parent] != node:
		case tree.next[node] == 0:
			t.parent[node], tree.first[parent] = 0, 0
			tree.roots = append(tree.roots, node)
		default:
			tree.roots = append(tree.roots, parent)
		}
	}
}

// liveParent removes the dummies between a message and its nearest parent that is a message or a
// topmost dummy, and returns that parent. All dummies on the way get it as their parent, so that no
// later walk repeats this one.
func (t *Threads) liveParent(node int32) int32 {
	parent := t.parent[node]
	for parent != 0 && t.message[parent] == 0 && t.parent[parent] != 0 {
		parent = t.parent[parent]
	}
	for node != parent && t.parent[node] != parent {
		node, t.parent[node] = t.parent[node], parent
	}
	return parent
}

// joinSubjects does step (5): it joins threads with the same base subject. It reports whether it
// has changed the trees.
func (t *Threads) joinSubjects(tree *threadTrees) (changed bool) {
	table := make(map[uint64]int32, len(tree.roots)) // step (A)
	subjectOf := func(root int32) (subject uint64, isDummy, isReply bool) {
		isDummy = t.message[root] == 0
		if isDummy {
			root = tree.first[root]
		}
		i := t.message[root] - 1
		return t.subjects[i], isDummy, t.isReply[i]
	}
	for _, root := range tree.roots { // step (B)
		subject, isDummy, isReply := subjectOf(root)
		if subject == 0 {
			continue
		}
		if other, found := table[subject]; found {
			_, otherDummy, otherReply := subjectOf(other)
			if otherDummy || !isDummy && (!otherReply || isReply) {
				continue
			}
		}
		table[subject] = root
	}
	for _, root := range tree.roots { // step (C)
		subject, isDummy, isReply := subjectOf(root)
		other := table[subject]
		if subject == 0 || other == root {
			continue
		}
		changed = true
		// A dummy under a dummy passes its children to it when build runs again.
		otherDummy, otherReply := t.message[other] == 0, false
		if !otherDummy {
			otherReply = t.isReply[t.message[other]-1]
		}
		if otherDummy || !isDummy && isReply && !otherReply {
			t.parent[root] = other
			continue
		}
		dummy := int32(len(t.parent))
		t.message, t.parent = append(t.message, 0), append(t.parent, 0)
		t.parent[root], t.parent[other] = dummy, dummy
		table[subject] = dummy
	}
	return changed
}

// appendTrees writes the threads without recursion, since a thread can be as deep as the mailbox
// has messages.
func (t *Threads) appendTrees(b []byte, tree *threadTrees) []byte {
	var open []int32 // the next sibling at each level where parentheses are open
	for _, root := range tree.roots {
		b = append(b, '(')
		open = append(open[:0], 0)
		for node := root; ; {
			if t.message[node] != 0 {
				b = strconv.AppendUint(b, uint64(t.numbers[t.message[node]-1]), 10)
			}
			child := tree.first[node]
			if child != 0 && t.message[node] != 0 {
				b = append(b, ' ')
			}
			switch {
			case child != 0 && tree.next[child] == 0:
				node = child
				continue
			case child != 0:
				b = append(b, '(')
				open = append(open, tree.next[child])
				node = child
				continue
			}
			for { // no more children: close parentheses up to the next sibling
				b = append(b, ')')
				node = open[len(open)-1]
				open = open[:len(open)-1]
				if node != 0 {
					b = append(b, '(')
					open = append(open, tree.next[node])
				}
				if node != 0 || len(open) == 0 {
					break
				}
			}
			if node == 0 {
				break
			}
		}
	}
	return b
}
