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

// ErrUnsealable is returned by Seal for a message whose chain did not pass, or is as long as chains
// may be, that bears no Authentication-Results of ours, or whose header is beyond 1 MiB or 4096
// fields.
var ErrUnsealable = errors.New("message cannot be sealed")

// SealOptions says how Seal seals.
type SealOptions struct {
	// Key is an RSA key: few verifiers of chains know ed25519.
	Key Key
	// AuthservID is our host name, by which our Authentication-Results field is known. The message
	// must have passed StripResults before that was added.
	AuthservID string
	// OmitMessageID keeps Message-ID and Date out of the signature, for relays that replace them.
	OmitMessageID bool
	Now           time.Time
}

// sealed are the fields that the message signature of a set covers where they are there.
var sealed = []string{"From", "Reply-To", "Subject", "Date", "To", "Cc", "Message-ID", "In-Reply-To", "References", "Sender",
	"MIME-Version", "Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "List-Id", "List-Unsubscribe",
	"List-Unsubscribe-Post", "Resent-From", "Resent-To", "Resent-Date", "DKIM-Signature"}

// Seal reads a message with CRLF line ends to its end and returns the ARC set (RFC 8617 section
// 5.1) that says what our Authentication-Results field on it says, folded and with CRLF, to be put
// before it as it is. Errors wrap ErrUnsealable, ErrKey or what reading met.
func Seal(message io.Reader, o SealOptions) ([]byte, error) {
	domain, selector, err := o.Key.place()
	if err != nil {
		return nil, err
	}
	if o.Key.algorithm() != "rsa-sha256" {
		return nil, fmt.Errorf("%w for ARC: %s._domainkey.%s", ErrKey, o.Key.Selector, o.Key.Domain)
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
	s := &sealing{o: o, domain: domain, selector: selector, fields: fields}
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsealable, err)
	}
	body, err := hashBody(context.Background(), br, true)
	if err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	return s.seal(body)
}

// A sealing is one set in the making.
type sealing struct {
	o                SealOptions
	domain, selector string
	fields           []field
	sets             []arcSet
	results          string // what follows the authserv-id in our Authentication-Results field
	cv               string
}

// begin finds out what the set is to say, and whether it may be added.
func (s *sealing) begin() (err error) {
	s.sets, err = arcSets(s.fields)
	if err != nil {
		return err
	}
	if len(s.sets) == maxSets {
		return errTooMany
	}
	ours, ok := s.ourResults()
	if !ok {
		return errors.New("no Authentication-Results of ours")
	}
	s.results, s.cv = ours, string(None)
	if len(s.sets) == 0 {
		return nil
	}
	s.cv = string(Pass)
	if chainResult(ours) != Pass {
		return errors.New("the chain did not pass")
	}
	return nil
}

// ourResults gives the part of our own Authentication-Results field behind the authserv-id.
func (s *sealing) ourResults() (string, bool) {
	for _, f := range named(s.fields, "Authentication-Results") {
		id, rest, ok := strings.Cut(f.value(), ";")
		if ok && strings.EqualFold(strings.TrimSpace(id), s.o.AuthservID) {
			return strings.TrimRight(rest, "\r\n"), true
		}
	}
	return "", false
}

// chainResult reads what a field of ours says about the chain.
func chainResult(results string) Result {
	for part := range strings.SplitSeq(results, ";") {
		words := strings.Fields(part)
		if len(words) > 0 && strings.HasPrefix(words[0], "arc=") {
			return Result(strings.TrimPrefix(words[0], "arc="))
		}
	}
	return None
}

// seal makes the three fields; body is the hash of the message's.
func (s *sealing) seal(body []byte) ([]byte, error) {
	i := strconv.Itoa(len(s.sets) + 1)
	set := arcSet{results: newField(arcResults+": i="+i+"; "+s.o.AuthservID+";"+s.results+"\r\n", 1)}
	names := s.signedNames()
	set.message = newField(folded(arcMessage,
		"i="+i, "a=rsa-sha256", "c=relaxed/relaxed", "d="+s.domain, "s="+s.selector, s.time(), "h="+strings.Join(names, ":"),
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
	set.seal = newField(folded(arcSeal, "i="+i, "a=rsa-sha256", s.time(), "cv="+s.cv, "d="+s.domain, "s="+s.selector, "b="), 1)
	text = sealedText(append(s.sets[:len(s.sets):len(s.sets)], set))
	set.seal, err = s.o.Key.sign(set.seal, text)
	if err != nil {
		return nil, err
	}
	return []byte(set.seal.raw + set.message.raw + set.results.raw), nil
}

func (s *sealing) time() string { return "t=" + strconv.FormatInt(s.o.Now.Unix(), 10) }

// signedNames are the names for h=, once for each field that there is, as long as they are not too
// many.
func (s *sealing) signedNames() []string {
	var names []string
	size := 0
	for _, name := range sealed {
		if s.o.OmitMessageID && (name == "Message-ID" || name == "Date") {
			continue
		}
		for range named(s.fields, name) {
			size += len(name) + 1
			if size > maxNames {
				return names
			}
			names = append(names, name)
		}
	}
	return names
}

// folded is a field of tags, folded between them, and in a list of names where a line would be too
// long.
func folded(name string, tags ...string) string {
	f := folder{}
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
