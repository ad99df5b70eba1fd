package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/buffers"
)

// ErrUnsealable is returned by Seal for a message in any of these cases: its ARC chain did not pass
// or has the maximum length, our Authentication-Results field is missing, or the header is beyond 1
// MiB or 4096 fields.
var ErrUnsealable = errors.New("message cannot be sealed for ARC")

// SealOptions are the options of Seal.
type SealOptions struct {
	// Key must be an RSA key, since few ARC verifiers support ed25519.
	Key Key
	// AuthservID is our host name. It identifies our Authentication-Results field in the message.
	// Before that field was added, StripResults must have been applied to the message.
	AuthservID string
	// OmitMessageID leaves Message-ID and Date out of the signature. It is for relays that replace
	// these fields.
	OmitMessageID bool
	Now           time.Time
}

// sealedFields are the fields that the ARC-Message-Signature covers if they are present.
var sealedFields = []string{"From", "Reply-To", "Subject", "Date", "To", "Cc", "Message-ID", "In-Reply-To", "References", "Sender",
	"MIME-Version", "Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "List-Id", "List-Unsubscribe",
	"List-Unsubscribe-Post", "Resent-From", "Resent-To", "Resent-Date", "DKIM-Signature"}

// Seal reads a whole message with CRLF line ends and returns an ARC set (RFC 8617 section 5.1) that
// records the results in our Authentication-Results field. The set is folded and ends in CRLF,
// ready to be written before the message. Errors wrap ErrUnsealable, ErrKey or the read error.
func Seal(message io.Reader, o SealOptions) ([]byte, error) {
	domain, selector, err := o.Key.dnsNames()
	if err != nil {
		return nil, err
	}
	if o.Key.algorithm() != "rsa-sha256" {
		return nil, fmt.Errorf("%w for ARC: %s._domainkey.%s is not an RSA key", ErrKey, o.Key.Selector, o.Key.Domain)
	}
	br := buffers.Reader(message)
	defer buffers.FreeReader(br)
	fields, err := readHeader(br)
	if errors.Is(err, errHeader) {
		return nil, fmt.Errorf("%w: %w", ErrUnsealable, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	s := &arcSealer{o: o, domain: domain, selector: selector, fields: fields}
	if err := s.determineResults(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsealable, err)
	}
	body, err := hashBody(context.Background(), br, true)
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	return s.seal(body)
}

// An arcSealer builds one ARC set.
type arcSealer struct {
	o                SealOptions
	domain, selector string
	fields           []field
	sets             []arcSet
	results          string // our Authentication-Results field without the authserv-id
	cv               string
}

// determineResults determines the results and cv= of the new set. It returns an error if the
// message must not be sealed.
func (s *arcSealer) determineResults() (err error) {
	s.sets, err = arcSets(s.fields)
	if err != nil {
		return err
	}
	if len(s.sets) == maxARCSets {
		return errTooManySets
	}
	ours, ok := s.ourResults()
	if !ok {
		return errors.New("the message has no Authentication-Results field of this host")
	}
	s.results, s.cv = ours, string(None)
	if len(s.sets) == 0 {
		return nil
	}
	s.cv = string(Pass)
	if chainResult(ours) != Pass {
		return errors.New("the ARC chain of the message did not pass")
	}
	return nil
}

// ourResults returns our Authentication-Results field without the authserv-id, false if there is no
// such field.
func (s *arcSealer) ourResults() (results string, ok bool) {
	for _, f := range fieldsNamed(s.fields, "Authentication-Results") {
		id, rest, ok := strings.Cut(f.value(), ";")
		if ok && strings.EqualFold(strings.TrimSpace(id), s.o.AuthservID) {
			return strings.TrimRight(rest, "\r\n"), true
		}
	}
	return "", false
}

// chainResult returns the arc= result in the text of our Authentication-Results field, None if
// there is none.
func chainResult(results string) Result {
	for part := range strings.SplitSeq(results, ";") {
		words := strings.Fields(part)
		if len(words) > 0 && strings.HasPrefix(words[0], "arc=") {
			return Result(strings.TrimPrefix(words[0], "arc="))
		}
	}
	return None
}

// seal returns the three fields of the set. body is the hash of the message's body.
func (s *arcSealer) seal(body []byte) ([]byte, error) {
	i := strconv.Itoa(len(s.sets) + 1)
	set := arcSet{results: newField(arcResults+": i="+i+"; "+s.o.AuthservID+";"+s.results+"\r\n", 1)}
	names := s.signedNames()
	set.message = newField(foldedField(arcMessage,
		"i="+i, "a=rsa-sha256", "c=relaxed/relaxed", "d="+s.domain, "s="+s.selector, s.timeTag(), "h="+strings.Join(names, ":"),
		"bh="+base64.StdEncoding.EncodeToString(body), "b="), 1)
	lower := strings.Split(strings.ToLower(strings.Join(names, ":")), ":")
	text, ok := signedText(s.fields, lower, set.message, true)
	if !ok {
		return nil, fmt.Errorf("%w: %w", ErrUnsealable, errHeader)
	}
	var err error
	set.message, err = s.o.Key.sign(set.message, text)
	if err != nil {
		return nil, err
	}
	set.seal = newField(foldedField(arcSeal, "i="+i, "a=rsa-sha256", s.timeTag(), "cv="+s.cv, "d="+s.domain, "s="+s.selector, "b="), 1)
	text = sealedText(append(s.sets[:len(s.sets):len(s.sets)], set))
	set.seal, err = s.o.Key.sign(set.seal, text)
	if err != nil {
		return nil, err
	}
	return []byte(set.seal.raw + set.message.raw + set.results.raw), nil
}

func (s *arcSealer) timeTag() string { return "t=" + strconv.FormatInt(s.o.Now.Unix(), 10) }

// signedNames returns the field names for h=, each as often as the field occurs, in at most
// maxNamesLength bytes.
func (s *arcSealer) signedNames() []string {
	var names []string
	size := 0
	for _, name := range sealedFields {
		if s.o.OmitMessageID && (name == "Message-ID" || name == "Date") {
			continue
		}
		for range fieldsNamed(s.fields, name) {
			size += len(name) + 1
			if size > maxNamesLength {
				return names
			}
			names = append(names, name)
		}
	}
	return names
}

// foldedField returns a field with the tags. It is folded between tags and, within a list of names,
// after a colon.
func foldedField(name string, tags ...string) string {
	f := fieldFolder{}
	f.text.WriteString(name + ":")
	f.column = f.text.Len()
	for i, tag := range tags {
		if i < len(tags)-1 {
			tag += ";"
		}
		for n, part := range strings.SplitAfter(tag, ":") {
			if n == 0 {
				f.add(part)
				continue
			}
			if f.column+len(part) > foldAt {
				f.newLine()
				f.text.WriteString(part)
				f.column = 8 + len(part)
				continue
			}
			f.text.WriteString(part)
			f.column += len(part)
		}
	}
	return f.text.String() + "\r\n"
}
