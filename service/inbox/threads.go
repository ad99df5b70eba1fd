package inbox

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

const (
	threadPrefix    = "thr_"
	maxThreadRefs   = 20 // how many of a message's references are added to its thread: the first and the newest 19
	maxSubjectPairs = 8  // pairs of author and recipient under which a message's subject is recorded
)

// threadNode returns the node for a Message-ID in the store's graph of threads.
func threadNode(id string) store.ThreadNode {
	sum := sha256.Sum256([]byte(id))
	return store.ThreadNode(sum[:len(store.ThreadNode{})])
}

// threadIDOf returns the ID of the thread whose first message is the node n.
func threadIDOf(n store.ThreadNode) string { return threadPrefix + hex.EncodeToString(n[:]) }

// parseThread parses a thread ID. ok is false if id is not a thread ID.
func parseThread(id string) (n store.ThreadNode, ok bool) {
	text, ok := strings.CutPrefix(id, threadPrefix)
	if !ok || len(text) != hex.EncodedLen(len(n)) {
		return n, false
	}
	_, err := hex.Decode(n[:], []byte(text))
	return n, err == nil
}

// ThreadFor returns the ID of the thread that a message joins when it is filed. It returns "" if
// the message has no Message-ID and refers to none. The ID of a thread is derived from its first
// message. A message joins the thread of its references. A reply without references joins the
// newest thread with the same subject between the same people. If a message connects two threads,
// they become one with the ID of the older thread, and the ID of the other thread remains valid.
// original is described at referencedIDs.
func ThreadFor(tx *store.Tx, account uint32, sum *msg.Summary, original string) (threadID string, err error) {
	var root store.ThreadNode
	found := false

	// Use the thread of the oldest known reference. If none is known, the oldest reference starts a
	// thread.
	ids := referencedIDs(sum, original)
	for k := 0; k < len(ids) && !found; k++ {
		node, known, err := tx.Thread(account, threadNode(ids[k]))
		if err != nil {
			return "", err
		}
		if known || k == 0 {
			root, found = node, known
		}
	}

	// A reply without references joins the thread with the same subject.
	if base, answer := msg.BaseSubject(sum.Subject); len(ids) == 0 && answer && base != "" {
		for _, key := range subjectKeys(base, sum) {
			var err error
			root, found, err = tx.FindSubject(account, key)
			if err != nil {
				return "", err
			}
			if found {
				break
			}
		}
	}

	// A message without references starts its own thread, unless earlier messages have referred to
	// it.
	if len(ids) == 0 && !found {
		if sum.MessageID == "" {
			return "", nil
		}
		own := threadNode(sum.MessageID)
		top, _, err := tx.Thread(account, own)
		if err != nil {
			return "", err
		}
		return threadIDOf(top), tx.TouchThread(account, own)
	}

	if sum.MessageID != "" {
		ids = append(ids, sum.MessageID)
	}
	for _, id := range ids {
		if err := tx.JoinThread(account, root, threadNode(id)); err != nil {
			return "", err
		}
	}
	root, _, err = tx.Thread(account, root)
	return threadIDOf(root), err
}

// referencedIDs returns the Message-IDs to which a message refers, the oldest first. If a relay
// replaced the Message-ID of the message that this one answers, original is the ID that we gave it;
// else "".
func referencedIDs(sum *msg.Summary, original string) []string {
	var ids []string
	if original != "" {
		ids = append(ids, original)
	}
	refs := sum.References
	if over := len(refs) - maxThreadRefs; over > 0 {
		refs = append(refs[:1:1], refs[1+over:]...)
	}
	ids = append(ids, refs...)
	if sum.InReplyTo != "" {
		ids = append(ids, sum.InReplyTo)
	}
	return ids
}

// recordSubject records the message's subject and thread, so that replies without references can
// find the thread.
func recordSubject(tx *store.Tx, account uint32, sum *msg.Summary, threadID string, at time.Time) error {
	n, ok := parseThread(threadID)
	base, _ := msg.BaseSubject(sum.Subject)
	if !ok || base == "" {
		return nil
	}
	for _, key := range subjectKeys(base, sum) {
		if err := tx.PutSubject(account, key, at, n); err != nil {
			return err
		}
	}
	return nil
}

// subjectKeys returns the keys under which a subject is recorded: one for each pair of the author
// and a recipient, at most maxSubjectPairs.
func subjectKeys(base string, sum *msg.Summary) (keys []store.SubjectKey) {
	author := strings.ToLower(firstEmail(sum.From))
	for _, list := range [][]msg.Address{sum.To, sum.Cc} {
		for _, a := range list {
			if len(keys) == maxSubjectPairs {
				return keys
			}
			other := strings.ToLower(a.Email())
			hash := sha256.Sum256([]byte(base + "\x00" + min(author, other) + "\x00" + max(author, other)))
			keys = append(keys, store.SubjectKey(hash[:len(store.SubjectKey{})]))
		}
	}
	return keys
}

// currentThreadID returns the current ID of a thread. id may be an earlier ID, from before the
// thread was joined with another one.
func currentThreadID(tx *store.Tx, account uint32, id string) (current string, err error) {
	n, ok := parseThread(id)
	if !ok {
		return id, nil
	}
	root, _, err := tx.Thread(account, n)
	return threadIDOf(root), err
}

// threadAliases returns all IDs that messages of a thread may have stored. It returns none if id is
// not a thread ID.
func threadAliases(tx *store.Tx, account uint32, id string) ([]string, error) {
	n, ok := parseThread(id)
	if !ok {
		return nil, nil
	}
	nodes, err := tx.ThreadNames(account, n)
	var names []string
	for _, node := range nodes {
		names = append(names, threadIDOf(node))
	}
	return names, err
}
