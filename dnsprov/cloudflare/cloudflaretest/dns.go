package cloudflaretest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Record is a DNS record in the form of the API.
type Record struct {
	ID       string         `json:"id"`
	Type     string         `json:"type"`
	Name     string         `json:"name"`
	Content  string         `json:"content"`
	Priority *uint16        `json:"priority,omitempty"`
	Data     map[string]any `json:"data,omitempty"`
	TTL      int            `json:"ttl"`
	Proxied  bool           `json:"proxied"`
	Comment  *string        `json:"comment"`
}

// A zone is a DNS zone in the form of the API, with its records.
type zone struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Status  string            `json:"status"`
	Servers []string          `json:"name_servers"`
	Account map[string]string `json:"account"`
	records []Record
}

// AddZone adds a zone and returns its ID. An empty status means "active".
func (s *Server) AddZone(name, status string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addZone(name, status)
}

// addZone does the same as AddZone while s.mu is locked.
func (s *Server) addZone(name, status string) string {
	if status == "" {
		status = "active"
	}
	z := &zone{
		ID: s.newID(), Name: name, Status: status, Account: map[string]string{"id": AccountID, "name": "Test"},
		Servers: []string{"ada.ns.cloudflare.test", "bob.ns.cloudflare.test"},
	}
	s.zones = append(s.zones, z)
	return z.ID
}

// SetStatus changes the status of a zone, such as "active" or "pending".
func (s *Server) SetStatus(name, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range s.zones {
		if z.Name == name {
			z.Status = status
		}
	}
}

// RemoveZone removes a zone with all its records.
func (s *Server) RemoveZone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zones = slices.DeleteFunc(s.zones, func(z *zone) bool { return z.Name == name })
}

// Put adds records to a zone without checks, as if somebody had added them in Cloudflare's
// dashboard.
func (s *Server) Put(zone string, records ...Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range s.zones {
		if z.Name != zone {
			continue
		}
		for _, r := range records {
			r.ID = s.newID()
			z.records = append(z.records, r)
		}
		return
	}
	panic("there is no zone " + zone)
}

// Records returns the records of a zone.
func (s *Server) Records(zone string) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range s.zones {
		if z.Name == zone {
			return slices.Clone(z.records)
		}
	}
	return nil
}

// answerZoneCall answers requests about zones and their records.
func (c *call) answerZoneCall() reply {
	if len(c.parts) == 1 {
		return c.listZones()
	}
	at := slices.IndexFunc(c.zones, func(z *zone) bool { return z.ID == c.parts[1] && c.canRead(z) })
	if at < 0 || len(c.parts) < 3 || c.parts[2] != "dns_records" {
		return refuse(http.StatusNotFound, 7003, "Could not route to /%s, perhaps your object identifier is invalid?", strings.Join(c.parts, "/"))
	}
	z := c.zones[at]
	method := c.r.Method
	if method == http.MethodGet && !c.hasPermission(ReadRecords) || method != http.MethodGet && !c.hasPermission(EditRecords) {
		return forbidden()
	}
	switch {
	case len(c.parts) == 3 && method == http.MethodGet:
		return c.listRecords(z)
	case len(c.parts) == 3 && method == http.MethodPost:
		return c.createRecord(z)
	case len(c.parts) == 4 && c.parts[3] == "batch" && method == http.MethodPost && !c.NoBatch:
		return c.changeRecords(z)
	case len(c.parts) == 4 && method == http.MethodDelete:
		return c.deleteRecord(z, c.parts[3])
	case len(c.parts) == 4 && method == http.MethodPut:
		return c.putRecord(z, c.parts[3])
	}
	return refuse(http.StatusMethodNotAllowed, 7001, "Method %s not available for that URI.", method)
}

// canRead reports whether the token of the request can read a zone.
func (c *call) canRead(z *zone) bool {
	return c.token.Zones == nil || slices.Contains(c.token.Zones, z.Name)
}

func (c *call) listZones() reply {
	if c.r.Method != http.MethodGet {
		return refuse(http.StatusMethodNotAllowed, 7001, "Method %s not available for that URI.", c.r.Method)
	}
	if !c.hasPermission(ReadZones) {
		return forbidden()
	}
	found := []*zone{}
	for _, z := range c.zones {
		if name := c.r.URL.Query().Get("name"); c.canRead(z) && (name == "" || name == z.Name) {
			found = append(found, z)
		}
	}
	return pageOf(c, found, 50)
}

func (c *call) listRecords(z *zone) reply {
	q := c.r.URL.Query()
	for name := range q {
		if !slices.Contains([]string{"page", "per_page", "name.endswith"}, name) {
			return refuse(http.StatusBadRequest, 9000, "The query parameter %s is not one of those that are expected here", name)
		}
	}
	found := []Record{}
	for _, r := range z.records {
		if strings.HasSuffix(r.Name, q.Get("name.endswith")) {
			found = append(found, r)
		}
	}
	limit := c.MaxPerPage
	if limit == 0 {
		limit = 100
	}
	return pageOf(c, found, limit)
}

// pageOf answers with the requested page of a list. A page has at most limit items.
func pageOf[T any](c *call, all []T, limit int) reply {
	q := c.r.URL.Query()
	size, number := 20, 1
	var err error
	if text := q.Get("per_page"); text != "" {
		size, err = strconv.Atoi(text)
		if err != nil || size < 1 || size > 100 {
			return refuse(http.StatusBadRequest, 1004, "per_page must be from 1 to 100")
		}
	}
	size = min(size, limit)
	if text := q.Get("page"); text != "" {
		number, err = strconv.Atoi(text)
		if err != nil || number < 1 {
			return refuse(http.StatusBadRequest, 1004, "page must be 1 or more")
		}
	}
	from := min((number-1)*size, len(all))
	part := all[from:min(from+size, len(all))]
	return reply{status: http.StatusOK, result: append([]T{}, part...), info: map[string]any{
		"page": number, "per_page": size, "count": len(part), "total_count": len(all), "total_pages": (len(all) + size - 1) / size,
	}}
}

// recordBody is a record in the body of a client's request.
type recordBody struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Name     string          `json:"name"`
	Content  string          `json:"content"`
	Priority *uint16         `json:"priority"`
	Data     json.RawMessage `json:"data"`
	TTL      int             `json:"ttl"`
	Proxied  bool            `json:"proxied"`
	Comment  string          `json:"comment"`
	Tags     []string        `json:"tags"`
}

// createRecord creates a record.
func (c *call) createRecord(z *zone) reply {
	var in recordBody
	if err := c.decodeBody(&in); err != nil || in.ID != "" {
		return refuse(http.StatusBadRequest, 9207, "Request body is invalid: %v", err)
	}
	made, bad := c.checkedRecord(z, in, "")
	if bad != nil {
		return *bad
	}
	z.records = append(z.records, made)
	return ok(made)
}

// putRecord overwrites the record with an ID.
func (c *call) putRecord(z *zone, id string) reply {
	var in recordBody
	if err := c.decodeBody(&in); err != nil {
		return refuse(http.StatusBadRequest, 9207, "Request body is invalid: %v", err)
	}
	made, bad := c.overwriteRecord(z, in, id)
	if bad != nil {
		return *bad
	}
	return ok(made)
}

// overwriteRecord replaces the record with an ID. It returns the answer of the API if that refuses.
func (c *call) overwriteRecord(z *zone, in recordBody, id string) (Record, *reply) {
	at := slices.IndexFunc(z.records, func(r Record) bool { return r.ID == id })
	if at < 0 {
		return Record{}, noRecord()
	}
	made, bad := c.checkedRecord(z, in, id)
	if bad != nil {
		return Record{}, bad
	}
	z.records[at] = made
	return made, nil
}

func noRecord() *reply {
	out := refuse(http.StatusNotFound, 81044, "Record does not exist.")
	return &out
}

func (c *call) deleteRecord(z *zone, id string) reply {
	at := slices.IndexFunc(z.records, func(r Record) bool { return r.ID == id })
	if at < 0 {
		return *noRecord()
	}
	z.records = slices.Delete(slices.Clone(z.records), at, at+1)
	return ok(map[string]string{"id": id})
}

// changeRecords makes all changes of a request or none: first deletes, then puts, then posts. It
// refuses patches.
func (c *call) changeRecords(z *zone) reply {
	var in struct {
		Deletes []struct{ ID string }
		Patches []json.RawMessage
		Puts    []recordBody
		Posts   []recordBody
	}
	if err := c.decodeBody(&in); err != nil || len(in.Patches) > 0 {
		return refuse(http.StatusBadRequest, 9207, "Request body is invalid: %v", err)
	}
	if n := len(in.Deletes) + len(in.Puts) + len(in.Posts); n == 0 || n > 200 {
		return refuse(http.StatusBadRequest, 81061, "a batch has from 1 to 200 changes, not %d", n)
	}
	before := slices.Clone(z.records)
	done := map[string][]any{"deletes": {}, "patches": {}, "puts": {}, "posts": {}}
	bad := func() *reply {
		for _, d := range in.Deletes {
			if out := c.deleteRecord(z, d.ID); out.status != http.StatusOK {
				return &out
			}
			done["deletes"] = append(done["deletes"], map[string]string{"id": d.ID})
		}
		for _, p := range in.Puts {
			made, bad := c.overwriteRecord(z, p, p.ID)
			if bad != nil {
				return bad
			}
			done["puts"] = append(done["puts"], made)
		}
		for _, p := range in.Posts {
			made, bad := c.checkedRecord(z, p, "")
			if bad != nil {
				return bad
			}
			z.records = append(z.records, made)
			done["posts"] = append(done["posts"], made)
		}
		return nil
	}()
	if bad != nil {
		z.records = before
		return *bad
	}
	return ok(done)
}

// checkedRecord checks a client's record and returns it in the form that is stored. id is the ID of
// the record that it replaces, or "" for a new record.
func (c *call) checkedRecord(z *zone, in recordBody, id string) (Record, *reply) {
	out := Record{ID: id, Type: in.Type, Name: strings.ToLower(strings.TrimSuffix(in.Name, ".")), Content: in.Content, Priority: in.Priority, TTL: in.TTL, Proxied: in.Proxied}
	if why := c.validationError(z, in, &out); why != nil {
		return Record{}, why
	}
	for _, r := range z.records {
		if bad := collisionError(r, out, z.Name); bad != nil && r.ID != id {
			return Record{}, bad
		}
	}
	if out.ID == "" {
		out.ID = c.newID()
	}
	if in.Comment != "" && !c.LoseComments {
		out.Comment = &in.Comment
	}
	return out, nil
}

func bad(code int, format string, args ...any) *reply {
	out := refuse(http.StatusBadRequest, code, format, args...)
	return &out
}

// validationError returns an error if a record is invalid, whatever other records the zone has. It
// also fills in the fields of out that the API derives.
func (c *call) validationError(z *zone, in recordBody, out *Record) *reply {
	switch {
	case out.Name != z.Name && !strings.HasSuffix(out.Name, "."+z.Name):
		return bad(9000, "DNS name is invalid: %s is not in the zone %s", in.Name, z.Name)
	case in.TTL != 1 && (in.TTL < 60 || in.TTL > 86400):
		return bad(9021, "Invalid TTL. Must be between 60 and 86400 seconds, or 1 for Automatic.")
	case len(in.Comment) > 100:
		return bad(9313, "DNS record comment exceeds the maximum length of 100 characters.")
	case in.Proxied && !slices.Contains([]string{"A", "AAAA", "CNAME"}, in.Type):
		return bad(9004, "This record type cannot be proxied.")
	case (in.Type == "SRV" || in.Type == "CAA") != (in.Data != nil), in.Data != nil && in.Content != "":
		return bad(9101, "data is a required data field for SRV and CAA, and for no other type here.")
	}
	switch in.Type {
	case "A", "AAAA":
		ip, err := netip.ParseAddr(in.Content)
		if err != nil || ip.Is4() != (in.Type == "A") {
			return bad(9005, "Content for %s record must be a valid IP address.", in.Type)
		}
	case "CNAME", "NS", "MX":
		if in.Content == "" || strings.ContainsAny(in.Content, " \"/:") || (in.Type == "MX") != (in.Priority != nil) {
			return bad(9007, "Content for %s record is invalid.", in.Type)
		}
		out.Content = strings.ToLower(strings.TrimSuffix(in.Content, "."))
	case "TXT":
		if len(in.Content) < 2 || in.Content[0] != '"' || in.Content[len(in.Content)-1] != '"' || len(in.Content) > 4096 {
			return bad(9009, "Content for TXT record must be quoted character strings.")
		}
	case "SRV", "CAA":
		return fillStructuredContent(in, out)
	default:
		return bad(1004, "DNS Validation Error: type %q", in.Type)
	}
	return nil
}

// fillStructuredContent fills in the content of an SRV or CAA record from its data.
func fillStructuredContent(in recordBody, out *Record) *reply {
	if err := json.Unmarshal(in.Data, &out.Data); err != nil {
		return bad(1004, "DNS Validation Error: data")
	}
	fields := map[string][]string{"SRV": {"priority", "weight", "port", "target"}, "CAA": {"flags", "tag", "value"}}[in.Type]
	for _, f := range fields {
		if out.Data[f] == nil {
			return bad(9101, "%s is a required data field.", f)
		}
	}
	if len(out.Data) != len(fields) {
		return bad(1004, "DNS Validation Error: data has %v", out.Data)
	}
	if in.Type == "CAA" {
		out.Content = fmt.Sprintf("%v %v %q", out.Data["flags"], out.Data["tag"], out.Data["value"])
		return nil
	}
	number, numeric := out.Data["priority"].(float64)
	if !numeric {
		return bad(9101, "priority is a required data field.")
	}
	priority := uint16(number)
	out.Priority, out.Content = &priority, fmt.Sprintf("%v %v %v", out.Data["weight"], out.Data["port"], out.Data["target"])
	return nil
}

// collisionError returns an error if the record with cannot exist beside the record r. A CNAME at
// the apex of the zone is flattened, so it only excludes addresses.
func collisionError(r, with Record, apex string) *reply {
	if r.Name != with.Name {
		return nil
	}
	samePriority := r.Priority == nil && with.Priority == nil || r.Priority != nil && with.Priority != nil && *r.Priority == *with.Priority
	alias := with.Type == "CNAME" && (r.Type == "A" || r.Type == "AAAA" || r.Type == "CNAME")
	switch {
	case r.Type == with.Type && r.Content == with.Content && samePriority:
		return bad(81058, "An identical record already exists.")
	case r.Type == with.Type && r.Content == with.Content:
		return bad(81057, "The record already exists.")
	case alias:
		return bad(81053, "An A, AAAA, or CNAME record with that host already exists.")
	case r.Type == "CNAME" && (with.Name != apex || with.Type == "A" || with.Type == "AAAA"), with.Type == "CNAME" && with.Name != apex:
		return bad(81054, "A CNAME record with that host already exists.")
	case r.Type == "NS" != (with.Type == "NS"):
		return bad(81056, "NS records with that host already exist.")
	}
	return nil
}

// RemoveRecords removes all records of a zone, as somebody may do in Cloudflare's dashboard.
func (s *Server) RemoveRecords(zone string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range s.zones {
		if z.Name == zone {
			z.records = nil
		}
	}
}
