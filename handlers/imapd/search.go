package imapd

import (
	"fmt"
	"slices"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/service/inbox"
)

const searchTime = 30 * time.Second

// Search answers SEARCH (RFC 9051 section 6.4.4).
func (ss *session) Search(kind imapserver.NumKind, criteria *imap.SearchCriteria, options *imap.SearchOptions) (*imap.SearchData, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel := ss.selected
	found, modSeqs, err := ss.search(criteria)
	if err != nil {
		if options.ReturnSave {
			sel.saved = nil // RFC 5182 section 2.1
		}
		return nil, ss.replyError(err)
	}
	if options.ReturnSave {
		sel.saved = savedResult(found, options)
	}
	nums := found
	if kind == imapserver.NumKindSeq {
		nums = make([]uint32, len(found))
		for i, uid := range found {
			nums[i] = sel.view.seq(uid)
		}
	}
	data := &imap.SearchData{All: seqSet(nums), Count: uint32(len(nums))}
	if kind == imapserver.NumKindUID {
		data.All = uidSet(nums)
	}
	if len(nums) > 0 && ss.extensions.searchModSeq {
		ss.patchSearchModSeq(reportedModSeq(modSeqs, options))
	}
	if len(nums) > 0 {
		data.Min, data.Max = nums[0], nums[len(nums)-1]
	}
	return data, nil
}

// savedResult is what "$" stands for after a search: all, unless only the first or the last were
// asked for (RFC 5182 section 2.1).
func savedResult(found []uint32, o *imap.SearchOptions) []uint32 {
	if o.ReturnAll || o.ReturnCount || len(found) == 0 {
		return found
	}
	var out []uint32
	if o.ReturnMin {
		out = append(out, found[0])
	}
	if o.ReturnMax {
		out = append(out, found[len(found)-1])
	}
	return slices.Compact(out)
}

// reportedModSeq is the MODSEQ in the answer of a search that has found something. If only MIN or
// MAX or both are asked for, it is that of the first or the last message, or the greater of the
// two; else it is the greatest of all (RFC 7162 section 3.1.10, RFC 4731 section 3.2).
func reportedModSeq(modSeqs []uint64, o *imap.SearchOptions) uint64 {
	first, last := modSeqs[0], modSeqs[len(modSeqs)-1]
	switch {
	case o.ReturnAll || o.ReturnCount:
		return slices.Max(modSeqs)
	case !o.ReturnMax:
		return first
	case !o.ReturnMin:
		return last
	}
	return max(first, last)
}

// search returns the UIDs of the messages that meet the criteria, ascending, and the MODSEQ of
// each.
func (ss *session) search(criteria *imap.SearchCriteria) (found []uint32, modSeqs []uint64, err error) {
	sel := ss.selected
	q, err := newQuery(criteria, sel.view, sel.saved)
	if err != nil {
		return nil, nil, err
	}
	until := time.Now().Add(searchTime)
	for uids := q.candidates(); len(uids) > 0; {
		rows, rest, err := ss.server.Service.MessageRows(ss.conn.ctx, ss.user, sel.folder, uids, inbox.RowQuery{Structure: q.structure})
		if err != nil {
			return nil, nil, err
		}
		uids = rest
		for i := range rows {
			c := &candidate{row: &rows[i], seq: sel.view.seq(rows[i].UID), open: ss.opener(rows[i].UID)}
			ok, err := q.match(c)
			c.close()
			if err != nil && !inbox.IsNotFound(err) {
				return nil, nil, err
			}
			if ok && err == nil {
				found, modSeqs = append(found, rows[i].UID), append(modSeqs, rows[i].ModSeq)
			}
			if err := ss.conn.ctx.Err(); err != nil {
				return nil, nil, err
			}
			if time.Now().After(until) {
				return nil, nil, refused(imap.ResponseCodeLimit, "The search takes too long; search for less")
			}
		}
	}
	return found, modSeqs, nil
}

// patchSearchModSeq adds the MODSEQ to the answer of a search by MODSEQ (RFC 7162 section 3.1.5).
func (ss *session) patchSearchModSeq(modSeq uint64) {
	if ss.extensions.extendedSearch || ss.imapConn.EnabledCaps().Has(imap.CapIMAP4rev2) {
		ss.conn.patchEnd("* ESEARCH", "\r\n", fmt.Sprintf(" MODSEQ %d", modSeq))
		return
	}
	ss.conn.patchEnd("* SEARCH", "\r\n", fmt.Sprintf(" (MODSEQ %d)", modSeq))
}

// opener gives the function that opens a message if its bytes must be searched.
func (ss *session) opener(uid uint32) func() (blob, error) {
	return func() (blob, error) {
		return ss.server.Service.OpenMessage(ss.conn.ctx, ss.user, ss.selected.folder, uid)
	}
}
