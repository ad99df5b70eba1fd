package catest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
)

// verify verifies the signature of a request (RFC 8555 section 6.2). It returns the account that
// signed the request, and the payload. If the request is invalid, why says what is wrong.
func (a *Authority) verify(r *http.Request) (account string, payload []byte, why string) {
	var jws struct{ Protected, Payload, Signature string }
	text, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || json.Unmarshal(text, &jws) != nil || r.Header.Get("Content-Type") != "application/jose+json" {
		return "", nil, "the request is not a JWS"
	}
	var head struct {
		Alg, Nonce, URL, KID string
		JWK                  *struct{ Crv, Kty, X, Y string }
	}
	protected, err := base64.RawURLEncoding.DecodeString(jws.Protected)
	if err != nil || json.Unmarshal(protected, &head) != nil || head.Alg != "ES256" || head.URL != a.server.URL+r.URL.Path {
		return "", nil, "the protected header is wrong"
	}
	a.counted++
	known := a.nonces[head.Nonce]
	delete(a.nonces, head.Nonce)
	if n := a.manners.StaleNonce; !known || n > 0 && a.counted%n == 0 {
		return "", nil, "badNonce"
	}
	if (head.JWK != nil) != (r.URL.Path == "/account") || (head.JWK == nil) != (head.KID != "") {
		return "", nil, "the request has a jwk and a kid, or the wrong one of them"
	}
	key := a.accounts[head.KID]
	if head.JWK != nil {
		key, why = publicKey(head.JWK.X, head.JWK.Y)
		if why != "" {
			return "", nil, why
		}
	}
	if key == nil {
		return "", nil, "accountDoesNotExist"
	}
	sum := sha256.Sum256([]byte(jws.Protected + "." + jws.Payload))
	sig, err := base64.RawURLEncoding.DecodeString(jws.Signature)
	if err != nil || len(sig) != 64 || !ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
		return "", nil, "the signature is wrong"
	}
	payload, err = base64.RawURLEncoding.DecodeString(jws.Payload)
	if err != nil {
		return "", nil, "the payload is not base64url"
	}
	account = head.KID
	if account == "" {
		account = a.accountOf(key)
	}
	return account, payload, ""
}

// publicKey decodes a public key from the coordinates in a JWK. If they are invalid, why says so.
func publicKey(x, y string) (key *ecdsa.PublicKey, why string) {
	bx, errX := base64.RawURLEncoding.DecodeString(x)
	by, errY := base64.RawURLEncoding.DecodeString(y)
	if errX != nil || errY != nil || len(bx) != 32 || len(by) != 32 {
		return nil, "the coordinates of the key are invalid"
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, bx, by))
	if err != nil {
		return nil, "the key is not a point of the curve"
	}
	return key, ""
}

// accountOf returns the URL of the account with a key. If there is none, it creates the account.
func (a *Authority) accountOf(key *ecdsa.PublicKey) string {
	for url, other := range a.accounts {
		if other.Equal(key) {
			return url
		}
	}
	url := fmt.Sprintf("%s/account/%d", a.server.URL, len(a.accounts)+1)
	a.accounts[url] = key
	return url
}
