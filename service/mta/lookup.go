package mta

import (
	"context"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/events"
	"github.com/mailstead/mailstead/store"
)

// maxMappings bounds one answer; it is as many as one send can have.
const maxMappings = 1000

// relayedData is the data of message.relayed.
type RelayedData struct {
	OriginalMessageID string    `json:"original_message_id" words:"theirs"`
	ProviderMessageID string    `json:"provider_message_id" words:"theirs"`
	Provider          string    `json:"provider" words:"ours"`
	Recipient         string    `json:"recipient" words:"theirs"`
	Sender            string    `json:"sender" words:"theirs"`
	SendingDomain     string    `json:"sending_domain" words:"ours"`
	RelayedAt         core.Time `json:"relayed_at"`
	UserID            *string   `json:"user_id" words:"ours"`
}

// addMapping notes the Message-ID that a relay minted for one recipient, and tells of it.
func (s *Service) addMapping(tx *store.Tx, row *store.Outgoing, provided string) error {
	row.ProviderMessageID = provided
	m := &store.Mapping{
		ID: tx.NewID("map"), AccountID: row.AccountID, Original: row.MessageID, Provided: provided, Provider: row.Provider,
		Recipient: row.Recipient, Sender: row.Sender, SendingDomain: row.Domain, RelayedAt: tx.Now(),
	}
	if err := store.Mappings.Put(tx, m); err != nil {
		return err
	}
	_, err := s.events.Emit(tx, row.AccountID, events.EventMessageRelayed, RelayedData{
		OriginalMessageID: m.Original, ProviderMessageID: m.Provided, Provider: m.Provider, Recipient: m.Recipient, Sender: m.Sender,
		SendingDomain: m.SendingDomain, RelayedAt: core.Time{Time: m.RelayedAt}, UserID: core.OrNull(row.MailboxID),
	})
	return err
}

// LookupIn is the query of lookup_message: exactly one of the two, with angle brackets or without.
type LookupIn struct {
	Provider string `query:"provider_message_id" max:"998"`
	Original string `query:"original_message_id" max:"998"`
}

// A Lookup pairs Message-IDs; it is empty where nothing is known.
type Lookup struct {
	OriginalMessageID  *string   `json:"original_message_id" words:"theirs"`
	ProviderMessageIDs []string  `json:"provider_message_ids" words:"theirs"`
	Data               []Mapping `json:"data"`
	Count              int       `json:"count"`
}

// A Mapping is one pair, for one recipient.
type Mapping struct {
	OriginalMessageID string    `json:"original_message_id" words:"theirs"`
	ProviderMessageID string    `json:"provider_message_id" words:"theirs"`
	Provider          string    `json:"provider" words:"ours"`
	Recipient         string    `json:"recipient" words:"theirs"`
	Sender            string    `json:"sender" words:"theirs"`
	SendingDomain     string    `json:"sending_domain" words:"ours"`
	RelayedAt         core.Time `json:"relayed_at"`
}

// LookupMessage finds what a relay made of a Message-ID, or what it was before.
func (s *Service) LookupMessage(_ context.Context, who core.Actor, in LookupIn) (*Lookup, error) {
	if (in.Provider == "") == (in.Original == "") {
		return nil, core.Errorf("exactly_one_parameter", "Give exactly one of provider_message_id and original_message_id.")
	}
	index, id := store.MappingsByProvided, in.Provider
	if in.Original != "" {
		index, id = store.MappingsByOriginal, in.Original
	}
	out := &Lookup{ProviderMessageIDs: []string{}, Data: []Mapping{}}
	err := s.Store.View(func(tx *store.Tx) error {
		oldest := tx.Now().Add(-core.MappingKept)
		for _, m := range index.Asc(tx, who.AccountID+core.Bracketed(id)+"\x00", "") {
			if m.RelayedAt.Before(oldest) {
				continue
			}
			out.add(m)
			if len(out.Data) == maxMappings {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (l *Lookup) add(m *store.Mapping) {
	l.OriginalMessageID = &m.Original
	l.ProviderMessageIDs = append(l.ProviderMessageIDs, m.Provided)
	l.Data = append(l.Data, Mapping{m.Original, m.Provided, m.Provider, m.Recipient, m.Sender, m.SendingDomain, core.Time{Time: m.RelayedAt}})
	l.Count = len(l.Data)
}
