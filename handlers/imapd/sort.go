package imapd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/handlers/imapd/order"
	"github.com/mailstead/mailstead/handlers/imapd/wire"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/inbox"
)

// largeSortSize is the number of messages above which a SORT or THREAD counts as large, since it
// takes up to 400 bytes of memory per message. A large one waits while maxLargeSorts others run.
const largeSortSize = 10_000

// sortFields are the keys of SORT (RFC 5256 section 3).
var sortFields = map[string]order.Field{
	"ARRIVAL": order.Arrival, "CC": order.CC, "DATE": order.Date, "FROM": order.From, "SIZE": order.Size,
	"SUBJECT": order.Subject, "TO": order.To,
}

// sort answers SORT (RFC 5256 section 3).
func (ss *session) sort(p *wire.Command) error {
	var keys []order.Key
	p.Space()
	p.ReadList(func() {
		key, word := order.Key{}, p.Word()
		if word == "REVERSE" {
			p.Space()
			key.Reverse, word = true, p.Word()
		}
		field, known := sortFields[word]
		if !known {
			p.Fail(wire.Bad("SORT does not know that key"))
		}
		key.Field = field
		if !slices.ContainsFunc(keys, func(k order.Key) bool { return k.Field == field }) {
			keys = append(keys, key)
		}
	})
	if len(keys) == 0 {
		p.Fail(wire.Bad("SORT needs a key"))
	}
	byContent := order.NeedsEnvelope(keys)
	q, err := ss.parseOrdered(p, byContent)
	if err != nil {
		return err
	}
	until := time.Now().Add(maxSearchTime)
	found, modSeqs, done, err := ss.findForOrdering(q, until)
	if err != nil {
		return err
	}
	defer done()
	sorter := order.NewSorter(keys, len(found))
	if err := ss.eachToOrder(p.UID(), found, byContent, until, sorter.Add); err != nil {
		return err
	}
	answer := []byte("* SORT")
	for _, n := range sorter.Sorted() {
		answer = strconv.AppendUint(append(answer, ' '), uint64(n), 10)
	}
	if len(found) > 0 && q.modSeq { // RFC 7162 section 3.1.6
		answer = fmt.Appendf(answer, " (MODSEQ %d)", slices.Max(modSeqs))
	}
	return ss.conn.WriteAnswer(append(answer, "\r\n"...))
}

// thread answers THREAD (RFC 5256 section 4).
func (ss *session) thread(p *wire.Command) error {
	p.Space()
	algorithm := strings.ToUpper(p.AString())
	if algorithm != "REFERENCES" && algorithm != "ORDEREDSUBJECT" {
		p.Fail(wire.Bad("THREAD knows REFERENCES and ORDEREDSUBJECT"))
	}
	q, err := ss.parseOrdered(p, true)
	if err != nil {
		return err
	}
	until := time.Now().Add(maxSearchTime)
	found, _, done, err := ss.findForOrdering(q, until)
	if err != nil {
		return err
	}
	defer done()
	threads := order.NewThreads(algorithm == "REFERENCES", len(found))
	if err := ss.eachToOrder(p.UID(), found, true, until, threads.Add); err != nil {
		return err
	}
	answer := []byte("* THREAD")
	if len(found) > 0 {
		answer = append(answer, ' ')
	}
	if algorithm == "REFERENCES" {
		answer = threads.AppendReferences(answer)
	} else {
		answer = threads.AppendOrderedSubject(answer)
	}
	return ss.conn.WriteAnswer(append(answer, "\r\n"...))
}

// parseOrdered parses the charset and the search keys of a SORT or THREAD. byContent says that the
// order depends on the content of messages.
func (ss *session) parseOrdered(p *wire.Command, byContent bool) (*query, error) {
	p.Space()
	parseCharset(p, "BADCHARSET (US-ASCII UTF-8)")
	q := parseQuery(p, ss.selected)
	q.ordersByContent = byContent
	if err := p.End(); err != nil {
		return nil, err
	}
	if q.modSeq {
		ss.enableCondStore()
	}
	return q, nil
}

// findForOrdering finds messages as findUIDs does, for a SORT or THREAD. If it has found many, it
// waits until fewer than maxLargeSorts others run. The caller must call done after it has ordered
// the messages.
func (ss *session) findForOrdering(q *query, until time.Time) (found []uint32, modSeqs []uint64, done func(), err error) {
	found, modSeqs, err = ss.findUIDs(q)
	if err != nil || len(found) <= largeSortSize {
		return found, modSeqs, func() {}, err
	}
	select {
	case ss.server.largeSorts <- struct{}{}:
		return found, modSeqs, func() { <-ss.server.largeSorts }, nil
	case <-ss.ctx.Done():
		return nil, nil, nil, ss.ctx.Err()
	case <-time.After(time.Until(until)):
		return nil, nil, nil, errSearchTooLong
	}
}

// eachToOrder calls add with each message to be ordered, which is valid only during the call. The
// message has its UID if byUID is set, or else its sequence number. It has the fields of the
// envelope only if withEnvelopes is set.
func (ss *session) eachToOrder(byUID bool, uids []uint32, withEnvelopes bool, until time.Time, add func(*order.Message)) error {
	sel := ss.selected
	var view msg.View
	var failed error
	last := uint32(0)
	for len(uids) > 0 {
		rest, err := ss.server.Service.Inbox.EachRow(ss.ctx, ss.user, sel.folder, uids, inbox.RowQuery{Structure: withEnvelopes}, func(row *inbox.MessageRow) bool {
			m := order.Message{Number: row.UID, Arrival: row.Received.Unix(), Size: row.Size}
			m.Sent = m.Arrival // RFC 5256 section 3, DATE
			if !byUID {
				last = sel.view.seqAfter(last, row.UID)
				m.Number = last
			}
			if withEnvelopes {
				var e *msg.EnvelopeView
				e, failed = view.Envelope(row.Structure)
				if failed != nil {
					return false
				}
				if e.Date.Known {
					m.Sent = e.Date.Unix
				}
				m.From, m.To, m.CC = firstMailbox(e.From), firstMailbox(e.To), firstMailbox(e.Cc)
				m.Subject, m.ID, m.References, m.InReplyTo = e.Subject, e.MessageID, e.References, e.InReplyTo
			}
			add(&m)
			return true
		})
		view.Clear()
		switch {
		case err != nil:
			return err
		case failed != nil:
			return failed
		case ss.ctx.Err() != nil:
			return ss.ctx.Err()
		case time.Now().After(until):
			return errSearchTooLong
		}
		uids = rest
	}
	return nil
}

// firstMailbox returns the addr-mailbox of the first address, as ENVELOPE has it (RFC 5256 section
// 3). It may be the name of a group.
func firstMailbox(list []msg.AddressView) []byte {
	if len(list) == 0 {
		return nil
	}
	return list[0].Mailbox
}
