package dnsd

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dchest/siphash"
	"github.com/miekg/dns"
)

const (
	clientCookie  = 8  // bytes (RFC 7873 section 4)
	serverCookie  = 16 // bytes, of the ones that we make (RFC 9018 section 4)
	cookieVersion = 1
	cookiePast    = time.Hour // how old a cookie may be (RFC 9018 section 4.3)
	cookieFuture  = 5 * time.Minute
	// secretFor is how long cookies are made with one secret. Those of the one before are taken
	// until the next, far longer than they live.
	secretFor = 24 * time.Hour
)

// proof is what a query's cookie says about its source address.
type proof int

const (
	noCookie proof = iota
	badCookie
	unproven // the client knows cookies, and has none of ours that holds
	proven   // the client has had an answer from us at this address
)

// secret keys the hash of server cookies.
type secret [16]byte

func newSecret() (s secret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// secrets are those whose cookies are taken; the first makes new ones.
type secrets struct {
	accepted []secret
	made     time.Time
}

// cookies makes and checks the server cookies of RFC 7873 and 9018.
type cookies struct {
	rolling sync.Mutex
	current atomic.Pointer[secrets]
}

func newCookies(now time.Time) *cookies {
	c := &cookies{}
	c.current.Store(&secrets{accepted: []secret{newSecret()}, made: now})
	return c
}

// secrets gives those of now, and makes a new one when it is time.
func (c *cookies) secrets(now time.Time) *secrets {
	s := c.current.Load()
	if now.Sub(s.made) < secretFor {
		return s
	}
	c.rolling.Lock()
	defer c.rolling.Unlock()
	if s = c.current.Load(); now.Sub(s.made) >= secretFor {
		s = &secrets{accepted: []secret{newSecret(), s.accepted[0]}, made: now}
		c.current.Store(s)
	}
	return s
}

// read checks the cookie of a query from an address, and gives the option that goes into the
// answer, nil for none. Of several cookies the first counts (RFC 7873 section 5.2).
func (c *cookies) read(opt *dns.OPT, from netip.Addr, now time.Time) (proof, *dns.EDNS0_COOKIE) {
	sent := cookieOf(opt)
	if sent == nil {
		return noCookie, nil
	}
	var room [clientCookie + 2*serverCookie]byte
	if len(sent.Cookie) > hex.EncodedLen(len(room)) {
		return badCookie, nil
	}
	n, err := hex.Decode(room[:], []byte(sent.Cookie))
	if err != nil || n < clientCookie || n > clientCookie && n < 2*clientCookie {
		return badCookie, nil // section 5.2.2
	}
	have, all := unproven, c.secrets(now)
	for _, s := range all.accepted {
		if n == clientCookie+serverCookie && s.holds(room[:n], from, now) {
			have = proven
		}
	}
	fresh := all.accepted[0].cookie(room[:clientCookie], from, now)
	return have, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: hex.EncodeToString(fresh)}
}

func cookieOf(opt *dns.OPT) *dns.EDNS0_COOKIE {
	if opt == nil {
		return nil
	}
	for _, o := range opt.Option {
		if cookie, ok := o.(*dns.EDNS0_COOKIE); ok {
			return cookie
		}
	}
	return nil
}

// cookie makes the whole cookie, client's and server's part, for a client at an address.
func (s secret) cookie(client []byte, from netip.Addr, now time.Time) []byte {
	out := append(make([]byte, 0, clientCookie+serverCookie), client...)
	out = append(out, cookieVersion, 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(now.Unix()))
	return s.hash(out, from)
}

// hash appends the hash of a cookie without one and of the address.
func (s secret) hash(cookie []byte, from netip.Addr) []byte {
	in := append(make([]byte, 0, clientCookie+serverCookie+8), cookie...)
	if from = from.Unmap(); from.Is4() {
		ip := from.As4()
		in = append(in, ip[:]...)
	} else {
		ip := from.As16()
		in = append(in, ip[:]...)
	}
	sum := siphash.Hash(binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:]), in)
	return binary.LittleEndian.AppendUint64(cookie, sum)
}

// holds tells whether a cookie of full length was made with s for this address, not long ago. The
// reserved bytes are hashed as they came, since another server of our operator's may fill them (RFC
// 9018 section 4.2).
func (s secret) holds(cookie []byte, from netip.Addr, now time.Time) bool {
	if cookie[clientCookie] != cookieVersion {
		return false
	}
	made := binary.BigEndian.Uint32(cookie[clientCookie+4:])
	age := time.Duration(int32(uint32(now.Unix())-made)) * time.Second // serial arithmetic (RFC 1982)
	if age > cookiePast || age < -cookieFuture {
		return false
	}
	unhashed := len(cookie) - 8
	want := s.hash(append(make([]byte, 0, len(cookie)), cookie[:unhashed]...), from)
	return subtle.ConstantTimeCompare(want, cookie) == 1
}
