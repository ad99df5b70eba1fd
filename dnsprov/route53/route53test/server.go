// Package route53test is a fake of the API of Amazon Route 53 for tests. It is strict, and can fail
// in ways that the test chooses. It does not know its clients.
package route53test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/mailstead/mailstead/dnsprov/rest/resttest"
)

// A Set is a set of records in the form of the API, with a routing policy if it has a Weight.
type Set struct {
	Name          string  `xml:"Name"`
	Type          string  `xml:"Type"`
	SetIdentifier string  `xml:"SetIdentifier,omitempty"`
	Weight        *int    `xml:"Weight,omitempty"`
	TTL           *int    `xml:"TTL,omitempty"`
	Values        []Value `xml:"ResourceRecords>ResourceRecord,omitempty"`
	Alias         *Alias  `xml:"AliasTarget,omitempty"`
}

// A Value is one record of a Set.
type Value struct {
	Text string `xml:"Value"`
}

// An Alias is the target of a set without records of its own.
type Alias struct {
	HostedZoneID string `xml:"HostedZoneId"`
	DNSName      string `xml:"DNSName"`
	Evaluate     bool   `xml:"EvaluateTargetHealth"`
}

// texts returns the values in order.
func (n Set) texts() []string {
	var out []string
	for _, v := range n.Values {
		out = append(out, v.Text)
	}
	slices.Sort(out)
	return out
}

type zone struct {
	id, name string
	private  bool
	sets     []Set
}

// A Server is the API with one account. Set the exported fields before the first request.
type Server struct {
	resttest.Server
	PageSize int                    // maximum number of items of a page; 0 means 300
	Denied   func(zone string) bool // whether changes of a zone are denied; nil: none are

	mu          sync.Mutex
	key, secret string
	zones       []*zone
}

// New returns a server whose account has one access key and no zones.
func New(key, secret string) *Server {
	s := &Server{key: key, secret: secret}
	s.API = http.HandlerFunc(s.serve)
	s.Server.TooMany = func(w http.ResponseWriter, _ time.Duration) {
		refuse(w, http.StatusBadRequest, "Throttling", "Rate exceeded")
	}
	return s
}

// AddZone adds a zone with Amazon's nameservers.
func (s *Server) AddZone(name string, private bool) {
	s.mu.Lock()
	n := len(s.zones)
	s.zones = append(s.zones, &zone{id: fmt.Sprintf("Z%013d", n), name: name + ".", private: private})
	s.mu.Unlock()
	s.Put(name, name, "NS", 172800, "ns-1.awsdns.test.", "ns-2.awsdns.test.")
	s.Put(name, name, "SOA", 900, "ns-1.awsdns.test. hostmaster.awsdns.test. 1 7200 900 1209600 86400")
}

// RemoveZones removes all zones.
func (s *Server) RemoveZones() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zones = nil
}

// Put replaces a set of all zones of a name without checks, as if somebody had done so in Amazon's
// console. No values delete the set.
func (s *Server) Put(zone, name, typ string, ttl int, values ...string) {
	n := Set{Name: name, Type: typ, TTL: &ttl}
	for _, v := range values {
		n.Values = append(n.Values, Value{v})
	}
	s.PutSet(zone, n)
}

// PutSet is Put for a set of any form.
func (s *Server) PutSet(zone string, n Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.Name = canonical(n.Name)
	for _, z := range s.zones {
		if z.name == zone+"." {
			z.sets = slices.DeleteFunc(slices.Clone(z.sets), n.isAt)
			if len(n.Values) > 0 || n.Alias != nil {
				z.sets = append(z.sets, n)
			}
		}
	}
}

func (n Set) isAt(o Set) bool {
	return o.Name == n.Name && o.Type == n.Type && o.SetIdentifier == n.SetIdentifier
}

// Sets returns the sets of a zone but the SOA.
func (s *Server) Sets(zone string) []Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range s.zones {
		if z.name == zone+"." {
			return slices.DeleteFunc(slices.Clone(z.sets), func(o Set) bool { return o.Type == "SOA" })
		}
	}
	return nil
}

// canonical returns a name as the API lists it.
func canonical(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSuffix(name, ".")), "*", `\052`) + "."
}

// reversed returns the labels of a name in the order in which names are sorted.
func reversed(name string) string {
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "."
}

const namespace = "https://route53.amazonaws.com/doc/2013-04-01/"

func refuse(w http.ResponseWriter, status int, code, format string, args ...any) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	text, _ := xml.Marshal(struct {
		XMLName xml.Name `xml:"ErrorResponse"`
		NS      string   `xml:"xmlns,attr"`
		Type    string   `xml:"Error>Type"`
		Code    string   `xml:"Error>Code"`
		Message string   `xml:"Error>Message"`
		ID      string   `xml:"RequestId"`
	}{NS: namespace, Type: "Sender", Code: code, Message: fmt.Sprintf(format, args...), ID: "1"})
	_, _ = w.Write(text)
}

func invalidBatch(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprintf(w, `<?xml version="1.0"?><InvalidChangeBatch xmlns="%s"><Messages><Message>`, namespace)
	_ = xml.EscapeText(w, []byte(message))
	fmt.Fprint(w, `</Message></Messages><RequestId>1</RequestId></InvalidChangeBatch>`)
}

func answer(w http.ResponseWriter, body any) {
	text, err := xml.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "text/xml")
	_, _ = io.WriteString(w, xml.Header)
	_, _ = w.Write(text)
}

// isSigned checks the signature of a request by signing it again.
func (s *Server) isSigned(r *http.Request, body []byte) bool {
	authorization := r.Header.Get("Authorization")
	_, names, _ := strings.Cut(authorization, "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return false
	}
	again, err := http.NewRequest(r.Method, "http://"+cmp.Or(r.Host, r.URL.Host)+r.URL.RequestURI(), strings.NewReader(string(body)))
	if err != nil {
		return false
	}
	for _, name := range strings.Split(names, ";") {
		if name != "host" && name != "x-amz-date" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	sum := sha256.Sum256(body)
	err = v4.NewSigner().SignHTTP(r.Context(), aws.Credentials{AccessKeyID: s.key, SecretAccessKey: s.secret}, again, hex.EncodeToString(sum[:]), "route53", "us-east-1", at)
	return err == nil && again.Header.Get("Authorization") == authorization
}

// serve answers a request that has no fault.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path, known := strings.CutPrefix(r.URL.Path, "/2013-04-01/")
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	switch {
	case !strings.Contains(r.Header.Get("Authorization"), "Credential="+s.key+"/"):
		refuse(w, http.StatusForbidden, "InvalidClientTokenId", "The security token included in the request is invalid")
	case !s.isSigned(r, body):
		refuse(w, http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	case known && r.Method == http.MethodGet && (path == "hostedzonesbyname" || path == "hostedzone"):
		s.listZones(w, r, path == "hostedzonesbyname")
	case known && len(parts) == 3 && parts[0] == "hostedzone" && parts[2] == "rrset":
		for _, z := range s.zones {
			if z.id != parts[1] {
				continue
			}
			switch {
			case r.Method == http.MethodGet:
				s.listSets(w, r, z)
			case s.Denied != nil && s.Denied(strings.TrimSuffix(z.name, ".")):
				refuse(w, http.StatusForbidden, "AccessDenied", "User: arn:aws:iam::1:user/x is not authorized to perform: route53:ChangeResourceRecordSets")
			default:
				s.change(w, z, body)
			}
			return
		}
		refuse(w, http.StatusNotFound, "NoSuchHostedZone", "No hosted zone found with ID: %s", parts[1])
	default:
		refuse(w, http.StatusNotFound, "NotFound", "not found")
	}
}

func (s *Server) listZones(w http.ResponseWriter, r *http.Request, byName bool) {
	type item struct {
		ID        string `xml:"Id"`
		Name      string `xml:"Name"`
		Reference string `xml:"CallerReference"`
		Private   bool   `xml:"Config>PrivateZone"`
	}
	var out struct {
		XMLName   xml.Name
		Zones     []item `xml:"HostedZones>HostedZone"`
		Truncated bool   `xml:"IsTruncated"`
		MaxItems  int    `xml:"MaxItems"`
	}
	out.XMLName = xml.Name{Space: namespace, Local: "ListHostedZonesResponse"}
	if byName {
		out.XMLName.Local = "ListHostedZonesByNameResponse"
	}
	out.MaxItems, _ = strconv.Atoi(r.URL.Query().Get("maxitems"))
	all := slices.Clone(s.zones)
	slices.SortStableFunc(all, func(a, b *zone) int { return strings.Compare(reversed(a.name), reversed(b.name)) })
	for _, z := range all {
		if !byName || reversed(z.name) >= reversed(r.URL.Query().Get("dnsname")) {
			out.Zones = append(out.Zones, item{"/hostedzone/" + z.id, z.name, "x", z.private})
		}
	}
	answer(w, out)
}

func (s *Server) listSets(w http.ResponseWriter, r *http.Request, z *zone) {
	var out struct {
		XMLName   xml.Name
		Sets      []Set  `xml:"ResourceRecordSets>ResourceRecordSet"`
		Truncated bool   `xml:"IsTruncated"`
		NextName  string `xml:"NextRecordName,omitempty"`
		NextType  string `xml:"NextRecordType,omitempty"`
		NextID    string `xml:"NextRecordIdentifier,omitempty"`
		MaxItems  int    `xml:"MaxItems"`
	}
	out.XMLName = xml.Name{Space: namespace, Local: "ListResourceRecordSetsResponse"}
	all := slices.Clone(z.sets)
	place := func(name, typ, id string) string { return reversed(name) + " " + typ + " " + id }
	slices.SortFunc(all, func(a, b Set) int {
		return strings.Compare(place(a.Name, a.Type, a.SetIdentifier), place(b.Name, b.Type, b.SetIdentifier))
	})
	q := r.URL.Query()
	size, _ := strconv.Atoi(q.Get("maxitems"))
	if size < 1 || size > 300 {
		refuse(w, http.StatusBadRequest, "InvalidInput", "maxitems must be from 1 to 300")
		return
	}
	if s.PageSize > 0 {
		size = min(size, s.PageSize)
	}
	out.MaxItems = size
	for _, o := range all {
		switch {
		case q.Get("name") != "" && place(o.Name, o.Type, o.SetIdentifier) < strings.TrimRight(place(q.Get("name"), q.Get("type"), q.Get("identifier")), " "):
		case len(out.Sets) == size:
			out.Truncated, out.NextName, out.NextType, out.NextID = true, o.Name, o.Type, o.SetIdentifier
			answer(w, out)
			return
		default:
			out.Sets = append(out.Sets, o)
		}
	}
	answer(w, out)
}

// change makes all changes of a batch, or none.
func (s *Server) change(w http.ResponseWriter, z *zone, body []byte) {
	var in struct {
		XMLName xml.Name `xml:"ChangeResourceRecordSetsRequest"`
		Changes []struct {
			Action string `xml:"Action"`
			Set    Set    `xml:"ResourceRecordSet"`
		} `xml:"ChangeBatch>Changes>Change"`
	}
	if err := xml.Unmarshal(body, &in); err != nil || len(in.Changes) == 0 {
		refuse(w, http.StatusBadRequest, "InvalidInput", "Invalid XML ; %v", err)
		return
	}
	sets := slices.Clone(z.sets)
	values, bytes := 0, 0
	for _, ch := range in.Changes {
		n := ch.Set
		n.Name = canonical(n.Name)
		values += len(n.Values)
		for _, v := range n.Values {
			bytes += len(v.Text)
		}
		at := slices.IndexFunc(sets, n.isAt)
		what := fmt.Sprintf("resource record set [name='%s', type='%s']", n.Name, n.Type)
		switch {
		case n.Name != z.name && !strings.HasSuffix(n.Name, "."+z.name):
			invalidBatch(w, fmt.Sprintf("RRSet with DNS name %s is not permitted in zone %s", n.Name, z.name))
			return
		case n.TTL == nil || *n.TTL < 0 || len(n.Values) == 0 || n.Alias != nil:
			refuse(w, http.StatusBadRequest, "InvalidInput", "Invalid request: Expected exactly one of [AliasTarget, all of [TTL, and ResourceRecords]]")
			return
		case !slices.Contains(strings.Fields("A AAAA CAA CNAME DS HTTPS MX NAPTR NS PTR SOA SPF SRV SSHFP SVCB TLSA TXT"), n.Type):
			refuse(w, http.StatusBadRequest, "InvalidInput", "1 validation error detected: Value '%s' at 'type' failed to satisfy constraint", n.Type)
			return
		case ch.Action == "DELETE" && (at < 0 || *sets[at].TTL != *n.TTL || !slices.Equal(sets[at].texts(), n.texts())):
			invalidBatch(w, "Tried to delete "+what+" but it was not found or the values provided do not match the current values")
			return
		case ch.Action == "DELETE":
			sets = slices.Delete(sets, at, at+1)
		case ch.Action != "CREATE":
			refuse(w, http.StatusBadRequest, "InvalidInput", "the action is %s", ch.Action)
			return
		case slices.ContainsFunc(sets, func(o Set) bool { return o.Name == n.Name && o.Type == n.Type }):
			invalidBatch(w, "Tried to create "+what+" but it already exists")
			return
		case slices.ContainsFunc(sets, func(o Set) bool { return o.Name == n.Name && (o.Type == "CNAME" || n.Type == "CNAME") }):
			invalidBatch(w, "RRSet of type "+n.Type+" with DNS name "+n.Name+" is not permitted as it conflicts with other records with the same DNS name in zone "+z.name)
			return
		case n.Type == "CNAME" && (n.Name == z.name || len(n.Values) > 1):
			invalidBatch(w, "RRSet of type CNAME with DNS name "+n.Name+" is not permitted at apex in zone "+z.name)
			return
		case slices.ContainsFunc(n.texts(), func(v string) bool { return wrongText(n.Type, v) }):
			invalidBatch(w, "Invalid Resource Record: 'FATAL problem: InvalidCharacterString' encountered with "+fmt.Sprint(n.Values))
			return
		default:
			sets = append(sets, n)
		}
	}
	if values > 1000 || bytes > 32_000 {
		refuse(w, http.StatusBadRequest, "InvalidChangeBatch", "Number of records limit of 1000, or of 32000 characters, exceeded.")
		return
	}
	z.sets = sets
	answer(w, struct {
		XMLName xml.Name
		ID      string `xml:"ChangeInfo>Id"`
		Status  string `xml:"ChangeInfo>Status"`
		At      string `xml:"ChangeInfo>SubmittedAt"`
	}{xml.Name{Space: namespace, Local: "ChangeResourceRecordSetsResponse"}, "/change/C1", "PENDING", "2026-01-02T03:04:05.678Z"})
}

// wrongText reports whether a text is not in quotation marks, or has a byte that must be written as
// octal digits.
func wrongText(typ, value string) bool {
	if typ != "TXT" {
		return false
	}
	for i := 0; i < len(value); i++ {
		digits := i+3 < len(value) && strings.Trim(value[i+1:i+4], "0123456789") == ""
		if value[i] < ' ' || value[i] > '~' || value[i] == '\\' && digits && strings.Trim(value[i+1:i+4], "01234567") != "" {
			return true
		}
	}
	return !strings.HasPrefix(value, `"`)
}
