package spam

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/mailstead/mailstead/mail/classify"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/store"
)

// Limits of the search for examples, so that it ends soon in large mailboxes too.
const (
	maxMailboxes = 20    // mailboxes searched at a time
	maxFolders   = 50    // folders searched in one mailbox
	maxEntries   = 5_000 // messages of one mailbox read from the indexes
	maxMetas     = 500   // messages of one mailbox whose row and metadata are read
)

// An example is a message that is learned as wanted mail.
type example struct {
	message  store.Message
	evidence classify.Evidence
	author   classify.Token
}

// examples returns examples of wanted mail, at most maxLessons. owed is how many examples each
// mailbox still needs. more reports whether there may be further examples.
func (s *Service) examples(account uint32, owed map[uint32]uint32, learned *classify.Model) (out []example, more bool, err error) {
	mailboxes := slices.Collect(maps.Keys(owed))
	rand.Shuffle(len(mailboxes), func(a, b int) { mailboxes[a], mailboxes[b] = mailboxes[b], mailboxes[a] })
	gone := []uint32{}
	err = s.Store.View(func(tx *store.Tx) error {
		out, gone = nil, nil
		for _, mailbox := range mailboxes[:min(len(mailboxes), maxMailboxes)] {
			folders, err := tx.Folders(mailbox)
			if err != nil {
				return err
			}
			if len(folders) == 0 {
				gone = append(gone, mailbox)
				continue
			}
			wanted := min(int(owed[mailbox]), maxLessons-len(out))
			found, err := examplesOf(tx, folders, wanted, learned)
			if err != nil {
				return err
			}
			out = append(out, found...)
		}
		return nil
	})
	for _, mailbox := range gone {
		delete(owed, mailbox)
	}
	return out, len(out) == maxLessons, err
}

// examplesOf returns up to `wanted` messages of a mailbox that are examples of wanted mail. Each
// has arrived, was read and was not learned yet, and is in INBOX or in a folder to which somebody
// has moved it. The messages are spread over as many days as possible, and over the authors with
// the fewest examples in the account.
func examplesOf(tx *store.Tx, folders []*store.Folder, wanted int, learned *classify.Model) ([]example, error) {
	if wanted <= 0 {
		return nil, nil
	}
	var nums []uint32
	for _, f := range folders {
		if !slices.Contains([]string{`\Junk`, `\Trash`, `\Sent`, `\Drafts`}, f.SpecialUse) && len(nums) < maxFolders {
			nums = append(nums, f.Num)
		}
	}

	// Candidates from the indexes: one of each day in random order, then a second one of each day,
	// and so on.
	type candidate struct {
		at    store.InboxPos
		order float64
	}
	var candidates []candidate
	ofDay := map[int]int{}
	seen, looked := true, 0
	for at, marks := range tx.Inbox(store.InboxQuery{Folders: nums, Seen: &seen}) {
		if looked++; looked > maxEntries {
			break
		}
		kept := at.Num == folders[0].Mailbox || marks.Bits&store.BitMoved != 0 // INBOX has its mailbox's number
		if !kept || marks.Bits&(taughtEither|store.BitWarmup|store.BitBounce) != 0 {
			continue
		}
		day := store.DayNumber(at.Received)
		candidates = append(candidates, candidate{at, float64(ofDay[day]) + rand.Float64()})
		ofDay[day]++
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.order, b.order) })

	// Read the metadata of the first candidates.
	var pool []example
	var view msg.View
	for _, c := range candidates[:min(len(candidates), maxMetas)] {
		mailbox, folder := tx.FolderOfNum(c.at.Num)
		m, err := tx.Message(mailbox, folder, c.at.UID)
		if err != nil {
			return nil, err
		}
		var meta store.Meta
		if err := tx.ReadMeta(&meta, m); err != nil {
			return nil, err
		}
		if v := ParseVerdict(meta.Spam); v == nil || v.Verdict == IsSpam {
			continue // its folder does not show that it is wanted: a rule may have moved it there
		}
		if slices.ContainsFunc(pool, func(e example) bool { return e.message.Blob == m.Blob }) {
			continue // a copy of another candidate
		}
		e := example{message: *m, evidence: EvidenceOf(meta.SPF, meta.DKIM, meta.DMARC, meta.OriginalMessageID != "")}
		if env, err := view.Envelope(meta.Structure); err == nil && env != nil && len(env.From) > 0 {
			e.author = classify.SenderToken(string(env.From[0].Mailbox), string(env.From[0].Host))
		}
		pool = append(pool, e)
	}

	// Choose the examples of the authors with the fewest examples.
	var out []example
	shown := map[classify.Token]int{}
	for _, e := range pool {
		shown[e.author] = int(learned.Get(e.author).Ham)
	}
	for range min(wanted, len(pool)) {
		least := 0
		for i, e := range pool {
			if shown[e.author] < shown[pool[least].author] {
				least = i
			}
		}
		out = append(out, pool[least])
		shown[pool[least].author]++
		pool = slices.Delete(pool, least, least+1)
	}
	return out, nil
}
