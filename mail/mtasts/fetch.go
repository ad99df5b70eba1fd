package mtasts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const fetchTimeout = 30 * time.Second

// ErrFetch is wrapped if the policy of a domain cannot be fetched. If the certificate of the policy
// host is the reason, the error wraps ErrCertificate as well.
var (
	ErrFetch       = errors.New("the MTA-STS policy could not be fetched")
	ErrCertificate = errors.New("the certificate of the MTA-STS policy host is not valid")
)

// NewHTTP returns a client for Fetch that uses the given transport. It follows no redirects (RFC
// 8461 section 3.3).
func NewHTTP(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport, Timeout: fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Fetch fetches the policy of a domain over HTTPS and verifies the certificate. domain must be in
// ASCII. Errors wrap ErrFetch or ErrInvalid.
func Fetch(ctx context.Context, client *http.Client, domain string) (*Policy, error) {
	url := "https://mta-sts." + domain + "/.well-known/mta-sts.txt"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFetch, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		if errors.As(err, new(*tls.CertificateVerificationError)) {
			err = fmt.Errorf("%w: %w", ErrCertificate, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrFetch, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %s answers %s", ErrFetch, url, resp.Status)
	}
	if !isPlainText(resp.Header.Get("Content-Type")) {
		return nil, fmt.Errorf("%w: %s is not text/plain", ErrInvalid, url)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPolicy+1))
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrFetch, url, err)
	}
	return ParsePolicy(text)
}
