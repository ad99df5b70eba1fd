package inbox

import (
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
)

// An Answerer is the person or program that answered a message.
type Answerer struct {
	Kind string    `json:"kind" enum:"team|mailbox|token"`
	Name string    `json:"name" words:"ours"`
	At   core.Time `json:"at"`
}

// NewAnswerer returns the Answerer for an actor: it names the actor by email address, or by the
// name of the API token.
func NewAnswerer(who core.Actor, at time.Time) Answerer {
	a := Answerer{Kind: "token", Name: who.TokenName, At: core.Time{Time: at}}
	switch {
	case who.Role == store.UserRoleMailbox:
		a.Kind, a.Name = "mailbox", who.Email
	case who.TokenKind == core.SessionKind || who.TokenName == "":
		a.Kind, a.Name = "team", who.Email
	}
	return a
}

// Text returns the Answerer in the form in which it is stored with the message.
func (a Answerer) Text() string {
	return strconv.FormatInt(a.At.UnixMilli(), 10) + " " + a.Kind + " " + a.Name
}

// parseAnswerer parses a text that Answerer.Text returned; it returns nil for "".
func parseAnswerer(text string) *Answerer {
	if text == "" { // nobody answered most messages, and an error of ParseInt takes memory
		return nil
	}
	at, rest, _ := strings.Cut(text, " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return nil
	}
	kind, name, _ := strings.Cut(rest, " ")
	return &Answerer{kind, name, core.Time{Time: time.UnixMilli(ms)}}
}
