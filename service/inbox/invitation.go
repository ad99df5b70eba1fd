package inbox

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/mail/ical"
	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// An Invitation is a calendar event to which a message invites.
type Invitation struct {
	Summary   string    `json:"summary" words:"theirs" example:"Berth 14"` // The title of the event.
	Location  string    `json:"location" words:"theirs" example:"Harbour office"`
	StartsAt  core.Time `json:"starts_at"`
	EndsAt    core.Time `json:"ends_at"`
	AllDay    bool      `json:"all_day"`                  // Whether it has dates and no times: these are at 00:00 UTC, and `ends_at` is the day after the last one.
	Organizer string    `json:"organizer" words:"theirs"` // The address that replies go to.

	OrganizerName string     `json:"organizer_name" words:"theirs" example:"Ann Berg"`
	Attendees     []Attendee `json:"attendees"` // The first 100.

	Answer *string `json:"answer" enum:"accepted|tentative|declined"`
}

// An Attendee is a person who is invited to an event.
type Attendee struct {
	Name   string  `json:"name" words:"theirs"`
	Email  string  `json:"email" words:"theirs"`                      // Empty if it is not a valid address.
	Answer *string `json:"answer" enum:"accepted|tentative|declined"` // What the organizer knows; null if there is no answer.
}

// maxAttendees is how many attendees an Invitation has.
const maxAttendees = 100

// invitationAnswers are the possible answers to an invitation. The keyword records the answer on
// the message, so that all clients of the mailbox see it. status is the PARTSTAT of the calendar
// reply.
var invitationAnswers = []struct{ name, keyword, status string }{
	{"accepted", "$Accepted", ical.Accepted}, {"tentative", "$Tentative", ical.Tentative}, {"declined", "$Declined", ical.Declined},
}

// maxCalendars is how many MIME parts of a message are tried as calendars.
const maxCalendars = 4

// calendarSubtypes are media subtypes that senders use for calendars in addition to text/calendar.
var calendarSubtypes = []string{"ics", "x-ics", "calendar", "x-calendar", "vcalendar", "x-vcalendar"}

// calendarParts returns the MIME parts of a message that may be calendars: text/calendar first,
// then parts with a subtype in calendarSubtypes or an .ics file name.
func calendarParts(root *msg.Part) []*msg.Part {
	var right, other []*msg.Part
	var find func(p *msg.Part)
	find = func(p *msg.Part) {
		if p.IsMessage() { // an embedded message, which may have another author
			return
		}
		name := strings.ToLower(p.DispositionParams["filename"])
		if name == "" {
			name = strings.ToLower(p.Params["name"])
		}
		switch {
		case p.DecodedSize > ical.MaxSize:
		case p.MediaType() == "text/calendar":
			right = append(right, p)
		case slices.Contains(calendarSubtypes, p.Subtype) || strings.HasSuffix(name, ".ics"):
			other = append(other, p)
		}
		for _, child := range p.Children {
			find(child)
		}
	}
	find(root)
	found := append(right, other...)
	return found[:min(len(found), maxCalendars)]
}

// readCalendar parses the calendar of a message. It returns nil if there is none that can be
// parsed.
func readCalendar(r io.ReaderAt, root *msg.Part) (*ical.Invitation, error) {
	for _, part := range calendarParts(root) {
		text, err := io.ReadAll(io.LimitReader(msg.Open(r, part), ical.MaxSize+1))
		if err != nil {
			return nil, fmt.Errorf("read calendar: %w", err)
		}
		i, err := ical.Read(text, part.Params["charset"])
		if err != nil {
			continue // the part is not a valid calendar
		}
		if i.Method == "" { // then the method is a parameter of the media type (RFC 6047 section 2.4)
			i.Method = strings.ToUpper(part.Params["method"])
		}
		return i, nil
	}
	return nil, nil
}

// isInvitation reports whether a calendar is a request that can be answered: its organizer has an
// email address.
func isInvitation(i *ical.Invitation) bool {
	return i != nil && i.Method == "REQUEST" && i.Organizer.Email != ""
}

// invitationOf returns the invitation in a message, or nil if there is none.
func invitationOf(o *openedMessage) (*Invitation, error) {
	i, err := readCalendar(o.blob, o.root)
	if err != nil || !isInvitation(i) {
		return nil, err
	}
	out := &Invitation{
		Summary: i.Summary, Location: i.Location, StartsAt: core.Time{Time: i.Starts}, EndsAt: core.Time{Time: i.Ends}, AllDay: i.AllDay,
		Organizer: i.Organizer.Email, OrganizerName: i.Organizer.Name, Attendees: []Attendee{},
	}
	for _, a := range i.Attendees[:min(len(i.Attendees), maxAttendees)] {
		out.Attendees = append(out.Attendees, Attendee{a.Name, a.Email, answerOf(a.Status)})
	}
	for _, a := range invitationAnswers {
		if HasKeyword(o.keywords, a.keyword) {
			out.Answer = &a.name
		}
	}
	return out, nil
}

// answerOf returns the name of the answer with a PARTSTAT, or nil if there is none.
func answerOf(status string) *string {
	for _, a := range invitationAnswers {
		if a.status == status {
			return &a.name
		}
	}
	return nil
}

// maxCancelScan is how many of a mailbox's newest messages are searched for the cancellation of an
// event.
const maxCancelScan = 2000

// ReadInvitation returns the invitation in a message, and the Message-ID of the message. The error
// is no_invitation if there is none that can be answered, or if a later message cancels the event.
func (s *Service) ReadInvitation(who core.Actor, in MessageIn) (invitation *ical.Invitation, messageID string, err error) {
	o, err := s.openMessage(in.by(who))
	if err != nil {
		return nil, "", err
	}
	defer o.blob.Close()
	none := func(why string) error { return core.Errorf("no_invitation", "There is nothing to answer: %s.", why) }
	i, err := readCalendar(o.blob, o.root)
	switch {
	case err != nil:
		return nil, "", err
	case i == nil || i.Method != "REQUEST":
		return nil, "", none("the message is no invitation")
	case !isInvitation(i):
		return nil, "", none("the invitation does not name one organizer by an email address")
	}
	cancelled, err := s.isCancelled(who, in.UserID, o, i)
	if err == nil && cancelled {
		err = none("the event was cancelled")
	}
	return i, o.shown.MessageID, err
}

// isCancelled reports whether a later message in the mailbox cancels the event.
func (s *Service) isCancelled(who core.Actor, userID string, o *openedMessage, i *ical.Invitation) (bool, error) {
	type place struct {
		ref  store.BlobRef
		root *msg.Part
	}
	var found []place
	err := s.Store.View(func(tx *store.Tx) error {
		found = nil
		mb, err := core.ReadMailbox(tx, who, userID)
		if err != nil {
			return err
		}
		folders, err := tx.Folders(mb.Num)
		if err != nil {
			return err
		}
		query := store.InboxQuery{Account: mb.AccountNum, From: o.shown.ReceivedAt.Time}
		ids := map[uint32]uint32{}
		for _, f := range folders {
			query.Folders = append(query.Folders, f.Num)
			ids[f.Num] = f.ID
		}
		looked := 0
		for at := range tx.Inbox(query) {
			if looked++; looked > maxCancelScan {
				return nil
			}
			meta, err := tx.Meta(mb.Num, ids[at.Num], at.UID)
			if err != nil {
				return err
			}
			root, err := msg.DecodePart(meta.Structure)
			if err != nil {
				return err
			}
			if len(calendarParts(root)) > 0 {
				m, err := tx.Message(mb.Num, ids[at.Num], at.UID)
				if err != nil {
					return err
				}
				found = append(found, place{m.Blob, root})
			}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, p := range found {
		blob, err := s.Store.OpenBlob(p.ref)
		if err != nil {
			return false, err
		}
		other, err := readCalendar(blob, p.root)
		blob.Close()
		if err != nil {
			return false, err
		}
		if other != nil && other.Cancels(i) {
			return true, nil
		}
	}
	return false, nil
}

// AnswerStatus returns the PARTSTAT for an answer to an invitation; "" if the answer is unknown.
func AnswerStatus(answer string) string {
	for _, a := range invitationAnswers {
		if a.name == answer {
			return a.status
		}
	}
	return ""
}

// MarkInvitation records an answer to the invitation in a message. It replaces an earlier answer.
func (s *Service) MarkInvitation(tx *store.Tx, who core.Actor, in MessageIn, answer string) error {
	mb, _, m, err := in.by(who).find(tx)
	if err != nil {
		return err
	}
	keywords := slices.Clone(m.Keywords)
	for _, a := range invitationAnswers {
		keywords = slices.DeleteFunc(keywords, func(k string) bool { return HasKeyword([]string{a.keyword}, k) })
		if a.name == answer {
			keywords = append(keywords, a.keyword)
		}
	}
	s.notifyWatchers(tx, mb.Num)
	return tx.SetFlags(m, m.Flags, keywords)
}
