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
	threadPrefix = "thr_"
	threadRefs   = 20 // Message-IDs of one message that are joined to its thread: the first and the newest 19
	threadPairs  = 8  // correspondents under whom a subject is recorded
)

// threadNode returns the node of a Message-ID.
func threadNode(id string) store.ThreadNode {
	sum := sha256.Sum256([]byte(id))
	return store.ThreadNode(sum[:len(store.ThreadNode{})])
}

func threadText(n store.ThreadNode) string { return threadPrefix + hex.EncodeToString(n[:]) }

// parseThread parses a thread ID; ok is false if id is not a thread ID.
func parseThread(id string) (n store.ThreadNode, ok bool) {
	text, ok := strings.CutPrefix(id, threadPrefix)
	if !ok || len(text) != hex.EncodedLen(len(n)) {
		return n, false
	}
	_, err := hex.Decode(n[:], []byte(text))
	return n, err == nil
}

// ThreadFor returns the ID of the thread to which a message that is being filed belongs, or "" if
// it has no Message-ID and refers to none. A thread is named by its first message. The references
// decide; a reply without references goes to the newest thread of its subject between the same
// people. If a late message connects two threads, they become one under the ID of the older; the
// other ID leads there too.
func ThreadFor(tx *store.Tx, account uint32, sum *msg.Summary, original string) (string, error) {
	var root store.ThreadNode
	found := false

	// Use the thread of the oldest known reference, else the one that the oldest reference starts.
	ids := threadIDs(sum, original)
	for k := 0; k < len(ids) && !found; k++ {
		node, known, err := tx.Thread(account, threadNode(ids[k]))
		if err != nil {
			return "", err
		}
		if known || k == 0 {
			root, found = node, known
		}
	}

	// A reply without references goes to the thread of its subject.
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
		return threadText(top), tx.TouchThread(account, own)
	}

	if sum.MessageID != "" {
		ids = append(ids, sum.MessageID)
	}
	for _, id := range ids {
		if err := tx.JoinThread(account, root, threadNode(id)); err != nil {
			return "", err
		}
	}
	root, _, err := tx.Thread(account, root)
	return threadText(root), err
}

// threadIDs returns the Message-IDs that the message refers to, the oldest first. original is our
// own ID of the message that it answers, if a relay replaced that ID.
func threadIDs(sum *msg.Summary, original string) []string {
	var ids []string
	if original != "" {
		ids = append(ids, original)
	}
	refs := sum.References
	if over := len(refs) - threadRefs; over > 0 {
		refs = append(refs[:1:1], refs[1+over:]...)
	}
	ids = append(ids, refs...)
	if sum.InReplyTo != "" {
		ids = append(ids, sum.InReplyTo)
	}
	return ids
}

// recordSubject records the message's subject, for replies that will have no references.
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

// subjectKeys returns the keys of a subject between the author and each recipient, at most
// threadPairs.
func subjectKeys(base string, sum *msg.Summary) (keys []store.SubjectKey) {
	author := strings.ToLower(firstEmail(sum.From))
	for _, list := range [][]msg.Address{sum.To, sum.Cc} {
		for _, a := range list {
			if len(keys) == threadPairs {
				return keys
			}
			other := strings.ToLower(a.Email())
			hash := sha256.Sum256([]byte(base + "\x00" + min(author, other) + "\x00" + max(author, other)))
			keys = append(keys, store.SubjectKey(hash[:len(store.SubjectKey{})]))
		}
	}
	return keys
}

// threadNow returns the current ID of a thread under whose earlier ID a message was filed.
func threadNow(tx *store.Tx, account uint32, id string) (string, error) {
	n, ok := parseThread(id)
	if !ok {
		return id, nil
	}
	root, _, err := tx.Thread(account, n)
	return threadText(root), err
}

// threadNames returns all IDs under which messages of a thread may be filed; none if id is not a
// thread ID.
func threadNames(tx *store.Tx, account uint32, id string) ([]string, error) {
	n, ok := parseThread(id)
	if !ok {
		return nil, nil
	}
	nodes, err := tx.ThreadNames(account, n)
	var names []string
	for _, node := range nodes {
		names = append(names, threadText(node))
	}
	return names, err
}
