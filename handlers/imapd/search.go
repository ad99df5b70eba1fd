package imapd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/service/inbox"
)

// maxSearchTime is how long a SEARCH, SORT or THREAD may run.
const maxSearchTime = 30 * time.Second

// search answers SEARCH (RFC 9051 section 6.4.4), also with RETURN (RFC 4731) and SAVE (RFC 5182).
func (ss *session) search(p *wire.Command) error {
	returns := map[string]bool{}
	extended := ss.rev2
	p.Space()
	if p.PeekWord() == "RETURN" {
		p.Atom()
		p.Space()
		p.ReadList(func() {
			option := p.Word()
			switch option {
			case "MIN", "MAX", "ALL", "COUNT", "SAVE":
				returns[option] = true
			default:
				p.Fail(wire.Bad("SEARCH does not know that return option"))
			}
		})
		p.Space()
		extended = true
	}
	if p.PeekWord() == "CHARSET" {
		p.Atom()
		p.Space()
		parseCharset(p, "BADCHARSET")
	}
	q := parseQuery(p, ss.selected)
	err := p.End()
	var found []uint32
	var modSeqs []uint64
	if err == nil {
		if q.modSeq {
			ss.enableCondStore()
		}
		found, modSeqs, err = ss.findUIDs(q)
	}
	if err != nil {
		// A search that ends in NO empties "$" (RFC 5182 section 2.1).
		if given := new(imap.Error); returns["SAVE"] && (!errors.As(err, &given) || given.Type == imap.StatusResponseTypeNo) {
			ss.selected.saved = nil
		}
		return err
	}

	onlySave := returns["SAVE"] && len(returns) == 1
	if returns["SAVE"] {
		ss.selected.saved = savedResult(found, returns)
	}
	if !returns["MIN"] && !returns["MAX"] && !returns["COUNT"] {
		returns["ALL"] = true
	}
	nums := found
	if !p.UID() {
		nums = make([]uint32, len(found))
		last := uint32(0)
		for i, uid := range found {
			last = ss.selected.view.seqAfter(last, uid)
			nums[i] = last
		}
	}
	if onlySave { // there is no untagged answer (RFC 5182 section 2.1)
		return nil
	}
	if !extended {
		answer := []byte("* SEARCH")
		for _, n := range nums {
			answer = strconv.AppendUint(append(answer, ' '), uint64(n), 10)
		}
		if len(nums) > 0 && q.modSeq { // RFC 7162 section 3.1.5
			answer = fmt.Appendf(answer, " (MODSEQ %d)", reportedModSeq(modSeqs, returns))
		}
		return ss.conn.WriteAnswer(append(answer, "\r\n"...))
	}
	answer := fmt.Sprintf("* ESEARCH (TAG %s)", wire.Quote(p.Tag))
	if p.UID() {
		answer += " UID"
	}
	if len(nums) > 0 {
		if returns["ALL"] {
			answer += " ALL " + seqSet(nums).String()
		}
		if returns["MIN"] {
			answer += fmt.Sprintf(" MIN %d", nums[0])
		}
		if returns["MAX"] {
			answer += fmt.Sprintf(" MAX %d", nums[len(nums)-1])
		}
	}
	if returns["COUNT"] {
		answer += fmt.Sprintf(" COUNT %d", len(nums))
	}
	if len(nums) > 0 && q.modSeq { // RFC 7162 section 3.1.10
		answer += fmt.Sprintf(" MODSEQ %d", reportedModSeq(modSeqs, returns))
	}
	return ss.conn.WriteAnswer([]byte(answer + "\r\n"))
}

// parseCharset parses the charset of search texts and the space after it. It refuses charsets other
// than US-ASCII and UTF-8 with the response code.
func parseCharset(p *wire.Command, code imap.ResponseCode) {
	name := p.AString()
	p.Space()
	if !strings.EqualFold(name, "US-ASCII") && !strings.EqualFold(name, "UTF-8") {
		p.Fail(wire.No(code, "Only US-ASCII and UTF-8 are supported"))
	}
}

// savedResult returns the UIDs that "$" has after a search. They are all UIDs found, or only the
// first or last one if only MIN or MAX was requested (RFC 5182 section 2.1).
func savedResult(found []uint32, returns map[string]bool) []uint32 {
	if returns["ALL"] || returns["COUNT"] || !returns["MIN"] && !returns["MAX"] || len(found) == 0 {
		return found
	}
	var out []uint32
	if returns["MIN"] {
		out = append(out, found[0])
	}
	if returns["MAX"] {
		out = append(out, found[len(found)-1])
	}
	return slices.Compact(out)
}

// reportedModSeq returns the MODSEQ for the answer to a search that has found messages. It is the
// greatest mod-sequence of the messages that the answer names: of the first for MIN, of the last
// for MAX, or of all (RFC 7162 section 3.1.10, RFC 4731 section 3.2).
func reportedModSeq(modSeqs []uint64, returns map[string]bool) uint64 {
	first, last := modSeqs[0], modSeqs[len(modSeqs)-1]
	switch {
	case returns["ALL"] || returns["COUNT"]:
		return slices.Max(modSeqs)
	case !returns["MAX"]:
		return first
	case !returns["MIN"]:
		return last
	}
	return max(first, last)
}

// findUIDs returns the ascending UIDs of the messages that meet the criteria, and their
// mod-sequences. It matches messages within transactions of the store. If it needs the bytes of a
// message, it sets the message aside and matches it after the transaction.
func (ss *session) findUIDs(q *query) (found []uint32, modSeqs []uint64, err error) {
	if err := ss.taintBySearch(q.candidateUIDs(), q.structure || q.ordersByContent); err != nil {
		return nil, nil, err
	}
	until := time.Now().Add(maxSearchTime)
	add := func(row *inbox.MessageRow) { found, modSeqs = append(found, row.UID), append(modSeqs, row.ModSeq) }
	for uids := q.candidateUIDs(); len(uids) > 0; {
		if err := ss.ctx.Err(); err != nil {
			return nil, nil, err
		}
		if time.Now().After(until) {
			return nil, nil, errSearchTooLong
		}
		var kept []pendingRow
		var failed error
		rest, err := ss.server.Service.Inbox.EachRow(ss.ctx, ss.user, ss.selected.folder, uids, inbox.RowQuery{Structure: q.structure, EmailID: q.emailID, ThreadID: q.threadID}, func(row *inbox.MessageRow) bool {
			ok, err := q.match(q.newCandidate(row, nil))
			switch {
			case errors.Is(err, errNeedsBytes):
				one := pendingRow{MessageRow: *row}
				one.Structure = bytes.Clone(row.Structure)
				kept = append(kept, one)
			case err != nil:
				failed = err
			case ok && len(kept) > 0:
				kept = append(kept, pendingRow{inbox.MessageRow{UID: row.UID, ModSeq: row.ModSeq}, true})
			case ok:
				add(row)
			}
			return failed == nil
		})
		q.view.Clear()
		if err := cmp.Or(err, failed); err != nil {
			return nil, nil, err
		}
		uids = rest
		for i := range kept {
			row := &kept[i]
			if !row.matches {
				row.matches, err = ss.matchBytes(q, &row.MessageRow)
				if err != nil {
					return nil, nil, err
				}
			}
			if row.matches {
				add(&row.MessageRow)
			}
			if err := ss.ctx.Err(); err != nil {
				return nil, nil, err
			}
			if time.Now().After(until) {
				return nil, nil, errSearchTooLong
			}
		}
	}
	return found, modSeqs, nil
}

// A pendingRow is a row that is set aside until the transaction has ended, to keep the order.
// Either the search needs the bytes of the message, or the message matches but an earlier row is
// set aside.
type pendingRow struct {
	inbox.MessageRow
	matches bool // false: the bytes are needed
}

// errSearchTooLong is the answer to a search that takes longer than maxSearchTime.
var errSearchTooLong = wire.No(imap.ResponseCodeLimit, "The search takes too long; search for less")

// matchBytes reports whether a message meets criteria that need its bytes. A message that is
// expunged or damaged does not match.
func (ss *session) matchBytes(q *query, row *inbox.MessageRow) (bool, error) {
	c := q.newCandidate(row, ss.opener(row.UID))
	defer c.close()
	ok, err := q.match(c)
	if inbox.IsNotFound(err) || inbox.IsDamaged(err) {
		return false, nil
	}
	return ok, err
}

// opener returns a function that opens the message with the UID.
func (ss *session) opener(uid uint32) func() (storedBytes, error) {
	return func() (storedBytes, error) {
		b, err := ss.server.Service.Inbox.OpenMessage(ss.ctx, ss.user, ss.selected.folder, uid)
		if err != nil {
			return nil, err // not b: a nil *Blob in the interface would not equal nil
		}
		return b, nil
	}
}
