package order

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"
)

const (
	// How many dummies there may be for all messages together, and how many more for each message.
	sharedDummies     = 100_000
	dummiesPerMessage = 3
)

// A Threads collects messages and groups them into threads. It keeps hashes of IDs and subjects,
// with a secret seed. A referenced message that is missing becomes a dummy. When there are too many
// dummies, references to further missing messages are ignored.
type Threads struct {
	seed     maphash.Seed
	byIDs    bool     // for THREAD=REFERENCES, not ORDEREDSUBJECT
	numbers  []uint32 // sequence number or UID of each message
	sent     []int64  // Unix seconds of the sent date of each message
	subjects []uint64 // hash of the base subject of each message; 0: it is empty
	isReply  []bool
	buf      []byte // reused

	// The following are indexed by node, from 1. A node is a message, or a dummy for a missing one.
	ids         map[uint64]int32 // nodes by the hash of their message ID
	message     []int32          // index of the message plus 1; 0: a dummy
	parent      []int32          // 0: no parent
	forest      forest           // the same trees as parent, in a form that finds roots fast
	nodes       []int32          // the node of each message, by the message's index
	dummiesLeft int              // how many more dummies may be made
}

// NewThreads returns a Threads for about n messages. If byIDs is true, the caller must call
// AppendReferences for the result, else AppendOrderedSubject.
func NewThreads(byIDs bool, n int) *Threads {
	t := &Threads{
		seed: maphash.MakeSeed(), byIDs: byIDs, dummiesLeft: sharedDummies, numbers: make([]uint32, 0, n),
		sent: make([]int64, 0, n), subjects: make([]uint64, 0, n), isReply: make([]bool, 0, n),
	}
	if byIDs {
		t.ids = make(map[uint64]int32, n)
		t.nodes = make([]int32, 0, n)
		t.newNode(0) // node 0 means no node
	}
	return t
}

// newNode adds a node for a message, given by its index plus 1, or a dummy for 0.
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
		t.dummiesLeft += dummiesPerMessage
		t.linkMessage(m)
	}
}

// linkMessage adds a node for a message, and links it to the messages that it refers to: step (1)
// of THREAD=REFERENCES (RFC 5256 section 3). If several messages have the same ID, the ID belongs
// to the first.
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
		key := t.hashID(id)
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
		key = t.hashID(m.ID)
		node = t.ids[key]
	}
	switch {
	case node != 0 && t.message[node] == 0:
		t.message[node] = index
	case hasID && node == 0:
		node = t.newNode(index)
		t.ids[key] = node
	default: // it has no ID, or the ID of an earlier message
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

// link makes child, which is a root, a child of parent. It does nothing if parent is below child.
func (t *Threads) link(child, parent int32) {
	if t.forest.root(parent) != child {
		t.forest.link(child, parent)
		t.parent[child] = parent
	}
}

// hashID returns the hash of a message ID. Quotes that its left side does not need are removed
// first (RFC 5256 section 3).
func (t *Threads) hashID(id []byte) uint64 {
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

// bySentDate returns the indexes of all messages, sorted by sent date. Messages with equal dates
// are in mailbox order.
func (t *Threads) bySentDate() []uint32 {
	list := make([]uint32, len(t.numbers))
	for i := range list {
		list[i] = uint32(i)
	}
	slices.SortFunc(list, func(a, b uint32) int { return cmp.Or(cmp.Compare(t.sent[a], t.sent[b]), cmp.Compare(a, b)) })
	return list
}

// AppendOrderedSubject appends the threads of THREAD=ORDEREDSUBJECT to b, as text of the answer.
func (t *Threads) AppendOrderedSubject(b []byte) []byte {
	order := t.bySentDate()
	next := make([]int32, len(order)) // the next message in the thread of each message
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

// AppendReferences appends the threads of THREAD=REFERENCES to b, as text of the answer.
func (t *Threads) AppendReferences(b []byte) []byte {
	t.ids, t.forest = nil, forest{} // not needed any more, since no more links are made
	tree := threadTrees{bySent: t.bySentDate()}
	t.build(&tree) // steps (2) to (4)
	if t.joinSubjects(&tree) {
		t.build(&tree) // step (6)
	}
	return t.appendTrees(b, &tree)
}

// A threadTrees has the trees of threads. Lists of children are sorted by sent date.
type threadTrees struct {
	bySent []uint32 // indexes of messages
	roots  []int32  // nodes
	first  []int32  // first child of each node; 0: none
	next   []int32  // next sibling of each node
}

// build makes the lists of children. It makes each message a child of its nearest ancestor that is
// a message, or else of its topmost dummy (step 3). A message that is the only child of such a
// dummy becomes a root.
func (t *Threads) build(tree *threadTrees) {
	tree.first, tree.next, tree.roots = make([]int32, len(t.parent)), make([]int32, len(t.parent)), tree.roots[:0]
	for _, i := range slices.Backward(tree.bySent) {
		node := t.nodes[i]
		if parent := t.nearestParent(node); parent != 0 {
			tree.next[node], tree.first[parent] = tree.first[parent], node
		}
	}
	// Among the roots, a dummy stands where its first child would.
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

// nearestParent returns the nearest ancestor of a message that is a message or a topmost dummy. It
// removes the dummies in between: they and the message get that ancestor as their parent, so that
// no later walk repeats this one.
func (t *Threads) nearestParent(node int32) int32 {
	parent := t.parent[node]
	for parent != 0 && t.message[parent] == 0 && t.parent[parent] != 0 {
		parent = t.parent[parent]
	}
	for node != parent && t.parent[node] != parent {
		node, t.parent[node] = t.parent[node], parent
	}
	return parent
}

// joinSubjects joins threads with the same base subject (step 5). It returns true if that has
// changed the trees.
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
		// If both are dummies, the children of root move to other when build runs again.
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

// appendTrees appends the threads to b. It is not recursive, because a thread can be as deep as the
// folder has messages.
func (t *Threads) appendTrees(b []byte, tree *threadTrees) []byte {
	var open []int32 // for each open parenthesis: the next sibling after it closes; 0: none
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
			for { // there are no more children: close parentheses up to the next sibling
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
