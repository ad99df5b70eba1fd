package imapd

import (
	"fmt"
	"slices"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"

	"github.com/mailstead/mailstead/service"
)

const searchTime = 30 * time.Second

// Search answers SEARCH (RFC 9051 section 6.4.4).
func (ss *session) Search(kind imapserver.NumKind, criteria *imap.SearchCriteria, options *imap.SearchOptions) (*imap.SearchData, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sel := ss.selected
	found, highest, err := ss.find(criteria)
	if err != nil {
		if options.ReturnSave {
			sel.saved = nil // RFC 5182 section 2.1
		}
		return nil, ss.answer(err)
	}
	if options.ReturnSave {
		sel.saved = saved(found, options)
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
	if len(nums) > 0 && ss.asks.searchModSeq {
		ss.tellSearchModSeq(highest)
	}
	if len(nums) > 0 {
		data.Min, data.Max = nums[0], nums[len(nums)-1]
	}
	return data, nil
}

// saved is what "$" stands for after a search: all, unless only the first or the last were asked for (RFC 5182
// section 2.1).
func saved(found []uint32, o *imap.SearchOptions) []uint32 {
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

// find gives the UIDs of the messages that meet the criteria, and their greatest MODSEQ.
func (ss *session) find(criteria *imap.SearchCriteria) (found []uint32, highest uint64, err error) {
	sel := ss.selected
	q, err := newQuery(criteria, sel.view, sel.saved)
	if err != nil {
		return nil, 0, err
	}
	until := time.Now().Add(searchTime)
	for uids := q.candidates(); len(uids) > 0; {
		rows, rest, err := ss.server.Service.MessageRows(ss.wire.ctx, ss.user, sel.folder, uids, service.RowQuery{Structure: q.structure})
		if err != nil {
			return nil, 0, err
		}
		uids = rest
		for i := range rows {
			c := &candidate{row: &rows[i], seq: sel.view.seq(rows[i].UID), open: ss.opener(rows[i].UID)}
			ok, err := q.match(c)
			c.close()
			if err != nil && !isGone(err) {
				return nil, 0, err
			}
			if ok && err == nil {
				found, highest = append(found, rows[i].UID), max(highest, rows[i].ModSeq)
			}
			if err := ss.wire.ctx.Err(); err != nil {
				return nil, 0, err
			}
			if time.Now().After(until) {
				return nil, 0, refused(imap.ResponseCodeLimit, "The search takes too long; search for less")
			}
		}
	}
	return found, highest, nil
}

// tellSearchModSeq has the answer of a search by MODSEQ say the greatest one that was found (RFC 7162 section 3.1.5).
func (ss *session) tellSearchModSeq(highest uint64) {
	if ss.asks.extendedSearch || ss.conn.EnabledCaps().Has(imap.CapIMAP4rev2) {
		ss.wire.amendEnd("* ESEARCH", "\r\n", fmt.Sprintf(" MODSEQ %d", highest))
		return
	}
	ss.wire.amendEnd("* SEARCH", "\r\n", fmt.Sprintf(" (MODSEQ %d)", highest))
}

// opener gives the function that opens a message if its bytes must be searched.
func (ss *session) opener(uid uint32) func() (blob, error) {
	return func() (blob, error) {
		return ss.server.Service.OpenMessage(ss.wire.ctx, ss.user, ss.selected.folder, uid)
	}
}
