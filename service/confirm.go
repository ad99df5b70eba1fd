package service

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// ConfirmFor is how long a quote can be confirmed.
const ConfirmFor = 10 * time.Minute

// Confirmation makes the text that confirms one operation with these arguments, for this token alone. It is
// authenticated rather than stored, and good until the time that it gives.
func (s *Service) Confirmation(who Actor, operation string, args []byte) (string, Time) {
	until := s.now().Add(ConfirmFor).Truncate(time.Second)
	text := binary.BigEndian.AppendUint64(nil, uint64(until.Unix()))
	text = append(text, s.confirmationMAC(who, operation, args, text)...)
	return base64.RawURLEncoding.EncodeToString(text), Time{until}
}

// Confirmed tells whether the text confirms the operation: a 400 says what is wrong with it.
func (s *Service) Confirmed(who Actor, operation string, args []byte, text string) error {
	const wrong = "is not the confirmation_token that this token got for these very arguments. Call without it to get a new quote"
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) < 8 || !hmac.Equal(raw[8:], s.confirmationMAC(who, operation, args, raw[:8])) {
		return Invalid("confirmation_token", "invalid", wrong)
	}
	if s.now().Unix() >= int64(binary.BigEndian.Uint64(raw)) {
		return Invalid("confirmation_token", "expired", "is older than ten minutes. Call without it to get a new quote")
	}
	return nil
}

func (s *Service) confirmationMAC(who Actor, operation string, args, until []byte) []byte {
	return s.keys.mac("confirm", who.AccountID, who.TokenID, operation, string(args), string(until))
}
