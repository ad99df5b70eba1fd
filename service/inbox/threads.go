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
	threadRefs   = 20 // message ids of one message that are put to its thread: the first and the newest
	threadPairs  = 8  // people whom a subject is remembered with
)

// threadNode stands for a message id.
func threadNode(id string) store.ThreadNode {
	sum := sha256.Sum256([]byte(id))
	return store.ThreadNode(sum[:len(store.ThreadNode{})])
}

func threadText(n store.ThreadNode) string { return threadPrefix + hex.EncodeToString(n[:]) }

// parseThread reads a thread's id; ok is false for what is none.
func parseThread(id string) (n store.ThreadNode, ok bool) {
	text, ok := strings.CutPrefix(id, threadPrefix)
	if !ok || len(text) != hex.EncodedLen(len(n)) {
		return n, false
	}
	_, err := hex.Decode(n[:], []byte(text))
	return n, err == nil
}

// thread gives the conversation that a message which is being filed belongs to, "" if nothing
// tells. It is named by its first message. What the message refers to decides; one that claims to
// be an answer and refers to nothing goes to the newest conversation of its subject between the
// same people. Where a message comes late and ties two conversations together they become one,
// under the name of the elder; the other name leads there too.
func thread(tx *store.Tx, account uint32, sum *msg.Summary, original string) (string, error) {
	ids := threadIDs(sum, original)
	root, err := eldestThread(tx, account, ids)
	if err != nil {
		return "", err
	}
	if len(ids) == 0 {
		var found bool
		if root, found, err = bySubject(tx, account, sum); err != nil {
			return "", err
		}
		if !found {
			return ownThread(tx, account, sum.MessageID)
		}
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
	return threadText(root), err
}

// ownThread is that of a message that refers to nothing; others may have referred to it before it
// came.
func ownThread(tx *store.Tx, account uint32, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	n := threadNode(id)
	root, _, err := tx.Thread(account, n)
	if err != nil {
		return "", err
	}
	return threadText(root), tx.TouchThread(account, n)
}

// threadIDs are what the message refers to, the eldest first. original is the message that it
// answers if a relay gave that another id.
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

// eldestThread gives the thread of the eldest message that is known, else that of the eldest.
func eldestThread(tx *store.Tx, account uint32, ids []string) (root store.ThreadNode, err error) {
	for _, id := range ids {
		root, known, err := tx.Thread(account, threadNode(id))
		if known || err != nil {
			return root, err
		}
	}
	if len(ids) > 0 {
		root = threadNode(ids[0])
	}
	return root, nil
}

// bySubject finds the thread of an answer that names no message.
func bySubject(tx *store.Tx, account uint32, sum *msg.Summary) (root store.ThreadNode, found bool, err error) {
	base, answer := msg.BaseSubject(sum.Subject)
	if !answer || base == "" {
		return root, false, nil
	}
	for _, key := range subjectKeys(base, sum) {
		if root, found, err = tx.FindSubject(account, key); found || err != nil {
			return root, found, err
		}
	}
	return root, false, nil
}

// recordSubject remembers the message's subject for answers that will name no message.
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

// subjectKeys stand for the subject between the author and each of those the message is to.
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

// threadNow is the name that the thread has now under which a message was filed.
func threadNow(tx *store.Tx, account uint32, id string) (string, error) {
	n, ok := parseThread(id)
	if !ok {
		return id, nil
	}
	root, _, err := tx.Thread(account, n)
	return threadText(root), err
}

// threadNames are the names under which messages of a thread may be filed; none for what is no
// thread's.
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
