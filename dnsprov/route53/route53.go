// Package route53 keeps the records of domains in hosted zones of Amazon Route 53. It does not know
// which records a domain should have, nor which of those that it finds are ours.
package route53

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	api "github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"

	"github.com/mailstead/mailstead/dnsprov"
	"github.com/mailstead/mailstead/dnsprov/rest"
	"github.com/mailstead/mailstead/dnsprov/rrset"
)

const (
	region     = "us-east-1" // where the API is
	maxRecords = 10_000      // of one domain
	maxProbed  = 5           // zones of one Check
	throttled  = time.Minute // the API does not say how long to wait
)

// Config configures a Client.
type Config struct {
	BaseURL         string // "" means the URL of Amazon
	AccessKeyID     string
	SecretAccessKey string
	HTTP            *http.Client  // nil means http.DefaultClient
	Pause           time.Duration // wait before the second attempt of a request; 0 means half a second
}

// A Client uses the API with one access key. It is a dnsprov.Provider, and any number of goroutines
// may use it.
type Client struct {
	api    *api.Client
	key    string
	secret string
}

// New returns a client without sending a request.
func New(c Config) *Client {
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	if c.Pause == 0 {
		c.Pause = rest.FirstPause
	}
	own := *c.HTTP
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o := api.Options{
		Region: region, HTTPClient: bounded{&own},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey}, nil
		}),
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = rest.MaxAttempts
			o.Backoff = retry.BackoffDelayerFunc(func(attempt int, _ error) (time.Duration, error) { return time.Duration(attempt) * c.Pause, nil })
		}),
	}
	if c.BaseURL != "" {
		o.BaseEndpoint = aws.String(strings.TrimSuffix(c.BaseURL, "/"))
	}
	return &Client{api: api.New(o), key: c.AccessKeyID, secret: c.SecretAccessKey}
}

// bounded ends answers that are too large.
type bounded struct{ *http.Client }

func (b bounded) Do(r *http.Request) (*http.Response, error) {
	resp, err := b.Client.Do(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, rest.MaxAnswer), resp.Body}
	}
	return resp, err
}

// credentialCodes lists the error codes of an access key that is not valid, or may not do what it
// is used for.
var credentialCodes = []string{
	"AccessDenied", "AccessDeniedException", "InvalidClientTokenId", "SignatureDoesNotMatch", "UnrecognizedClientException", "MissingAuthenticationToken",
	"IncompleteSignature", "ExpiredToken", "OptInRequired", "InvalidAccessKeyId",
}

// begin checks the form of the access key, and bounds the time of a call.
func (c *Client) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	invalid := func(r rune) bool { return r <= ' ' || r > '~' }
	if c.key == "" || c.secret == "" || strings.ContainsFunc(c.key+c.secret, invalid) {
		return nil, nil, fmt.Errorf("route53: %w: it does not have the form of an access key", dnsprov.ErrCredential)
	}
	ctx, cancel := context.WithTimeout(ctx, rest.WorkTimeout)
	return ctx, cancel, nil
}

// explain converts an error of the SDK.
func (c *Client) explain(ctx context.Context, operation string, err error) error {
	var no smithy.APIError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("route53: %s: %w", operation, ctx.Err())
	case !errors.As(err, &no):
		return fmt.Errorf("route53: %s: %s", operation, rest.Clean(rest.WithoutURL(ctx, err).Error(), c.secret))
	}
	why := no.ErrorMessage()
	var batch *types.InvalidChangeBatch
	if errors.As(err, &batch) && len(batch.Messages) > 0 {
		why = strings.Join(batch.Messages, "; ")
	}
	text := fmt.Sprintf("route53: %s: %s: %s", operation, rest.Clean(no.ErrorCode(), c.secret), rest.Clean(why, c.secret))
	_, isThrottled := retry.DefaultThrottleErrorCodes[no.ErrorCode()]
	switch {
	case slices.Contains(credentialCodes, no.ErrorCode()):
		return fmt.Errorf("%s: %w", text, dnsprov.ErrCredential)
	case isThrottled:
		return &dnsprov.Wait{For: throttled, Err: errors.New(text)}
	case no.ErrorCode() == "NoSuchHostedZone":
		return fmt.Errorf("%s: %w", text, dnsprov.ErrZoneNotFound)
	case no.ErrorCode() == "InvalidChangeBatch" || no.ErrorCode() == "InvalidInput":
		return &refusal{text}
	}
	return errors.New(text)
}

// errForeign is the error that an answer lacks what each answer of the API has. The SDK takes it
// for an empty one.
var errForeign = errors.New("the answer is not one of the API")

// A refusal is the error that the API does not make a change.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// A zone is a public hosted zone.
type zone struct{ id, name string }

func newZone(z types.HostedZone) (zone, bool) {
	private := z.Config != nil && z.Config.PrivateZone
	name := decodeName(aws.ToString(z.Name))
	return zone{strings.TrimPrefix(aws.ToString(z.Id), "/hostedzone/"), name}, !private && name != ""
}

// Check returns dnsprov.ErrCredential if the access key is not valid, or may change no zone, and
// dnsprov.ErrZoneNotFound if its account has no public zones. It tries to delete a set that does
// not exist, which changes nothing.
func (c *Client) Check(ctx context.Context) error {
	ctx, cancel, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	found, err := c.api.ListHostedZones(ctx, &api.ListHostedZonesInput{MaxItems: aws.Int32(100)})
	if err == nil && found.MaxItems == nil {
		err = errForeign
	}
	if err != nil {
		return c.explain(ctx, "ListHostedZones", err)
	}
	probed, err := 0, fmt.Errorf("route53: %w: the account of the access key has no public hosted zones", dnsprov.ErrZoneNotFound)
	for _, h := range found.HostedZones {
		z, public := newZone(h)
		if !public || probed == maxProbed {
			continue
		}
		probed++
		none := &types.ResourceRecordSet{
			Name: aws.String("_mailstead-check." + z.name), Type: types.RRTypeTxt, TTL: aws.Int64(60), ResourceRecords: []types.ResourceRecord{{Value: aws.String(`"none"`)}},
		}
		err = c.change(ctx, z, []types.Change{{Action: types.ChangeActionDelete, ResourceRecordSet: none}})
		if errors.As(err, new(*refusal)) { // it may, but there is nothing to delete
			return nil
		}
		if !errors.Is(err, dnsprov.ErrCredential) {
			return err
		}
	}
	return err
}

func (c *Client) change(ctx context.Context, z zone, changes []types.Change) error {
	done, err := c.api.ChangeResourceRecordSets(ctx, &api.ChangeResourceRecordSetsInput{HostedZoneId: &z.id, ChangeBatch: &types.ChangeBatch{Changes: changes}})
	if err == nil && (done.ChangeInfo == nil || done.ChangeInfo.Id == nil) {
		err = errForeign
	}
	if err != nil {
		return c.explain(ctx, "ChangeResourceRecordSets", err)
	}
	return nil
}

// FindZone returns the name of the zone that a domain is in.
func (c *Client) FindZone(ctx context.Context, domain string) (string, error) {
	ctx, cancel, err := c.begin(ctx)
	if err != nil {
		return "", err
	}
	defer cancel()
	z, err := c.zone(ctx, domain)
	return z.name, err
}

// zone returns the zone with the longest name that a domain is in.
func (c *Client) zone(ctx context.Context, domain string) (zone, error) {
	for name := domain; strings.Contains(name, "."); _, name, _ = strings.Cut(name, ".") {
		found, err := c.api.ListHostedZonesByName(ctx, &api.ListHostedZonesByNameInput{DNSName: aws.String(name + "."), MaxItems: aws.Int32(100)})
		if err == nil && found.MaxItems == nil {
			err = errForeign
		}
		if err != nil {
			return zone{}, c.explain(ctx, "ListHostedZonesByName", err)
		}
		var zones []zone
		for _, h := range found.HostedZones {
			if z, public := newZone(h); public && z.name == name {
				zones = append(zones, z)
			}
		}
		switch {
		case len(zones) == 1:
			return zones[0], nil
		case len(zones) > 1:
			return zone{}, fmt.Errorf("route53: %w: the account has %d public hosted zones with the name %s; delete those that the domain does not use", dnsprov.ErrZoneNotFound, len(zones), name)
		}
	}
	return zone{}, fmt.Errorf("route53: %w: the account of the access key has no public hosted zone that %s is in", dnsprov.ErrZoneNotFound, domain)
}

// Records lists the zone's records at the domain and below it but the SOA, all of them as foreign.
// A record has its Key as ID, unless it is in another form than Apply writes it, or has a routing
// policy. An alias to another resource of Amazon is Flattened if it stands for addresses.
func (c *Client) Records(ctx context.Context, at dnsprov.ZoneRef) ([]dnsprov.Record, error) {
	ctx, cancel, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	z, err := c.zone(ctx, at.Domain)
	if err != nil {
		return nil, err
	}
	l, err := c.list(ctx, z, at.Domain)
	if err != nil {
		return nil, err
	}
	out := l.sets.Records(at.Domain, 0)
	for i, r := range out {
		target, isAlias := l.aliases[dnsprov.Set{Name: r.Name, Type: r.Type}]
		if isAlias && (r.Type == "A" || r.Type == "AAAA") {
			out[i].Type, out[i].Value = dnsprov.Flattened, target
		}
	}
	return out, nil
}

// A list has the sets of a zone at and below a domain.
type list struct {
	sets    rrset.Sets
	given   map[dnsprov.Set]types.ResourceRecordSet // as the API has them, which is needed to delete them
	aliases map[dnsprov.Set]string                  // the targets of aliases
	special map[dnsprov.Set]bool                    // aliases, and sets with a routing policy
}

// list lists the sets at and below a domain. The API orders names by their last labels, so they are
// in one piece.
func (c *Client) list(ctx context.Context, z zone, domain string) (*list, error) {
	l := &list{sets: rrset.Sets{}, given: map[dnsprov.Set]types.ResourceRecordSet{}, aliases: map[dnsprov.Set]string{}, special: map[dnsprov.Set]bool{}}
	in := &api.ListResourceRecordSetsInput{HostedZoneId: &z.id, StartRecordName: aws.String(domain + "."), MaxItems: aws.Int32(300)}
	for n := 0; ; {
		page, err := c.api.ListResourceRecordSets(ctx, in)
		if err == nil && page.MaxItems == nil {
			err = errForeign
		}
		if err != nil {
			return nil, c.explain(ctx, "ListResourceRecordSets", err)
		}
		for _, s := range page.ResourceRecordSets {
			name := decodeName(aws.ToString(s.Name))
			if !dnsprov.IsWithin(name, domain) {
				return l, nil
			}
			if s.Type != types.RRTypeSoa {
				n += max(1, len(s.ResourceRecords))
				l.add(dnsprov.Set{Name: name, Type: string(s.Type)}, s)
			}
		}
		if n > maxRecords {
			return nil, fmt.Errorf("route53: the zone %s has more than %d records of %s", z.name, maxRecords, domain)
		}
		if !page.IsTruncated || page.NextRecordName == nil || len(page.ResourceRecordSets) == 0 {
			return l, nil
		}
		in.StartRecordName, in.StartRecordType, in.StartRecordIdentifier = page.NextRecordName, page.NextRecordType, page.NextRecordIdentifier
	}
}

// add adds a set of the API.
func (l *list) add(at dnsprov.Set, s types.ResourceRecordSet) {
	ttl := uint32(min(max(aws.ToInt64(s.TTL), 0), dnsprov.MaxTTL))
	if s.AliasTarget != nil {
		target := strings.ToLower(strings.TrimSuffix(aws.ToString(s.AliasTarget.DNSName), "."))
		l.aliases[at] = target
		l.special[at] = true
		l.sets[at] = append(l.sets[at], rrset.Opaque("alias of "+target, ttl))
		return
	}
	for _, r := range s.ResourceRecords {
		given := aws.ToString(r.Value)
		v := rrset.Read(at, ttl, decimal(given), ".")
		v.Text = given
		if s.SetIdentifier != nil {
			l.special[at] = true
			v = rrset.Opaque(given, ttl)
		}
		l.sets[at] = append(l.sets[at], v)
	}
	l.given[at] = s
}
