import { Tabs } from '../../ui'

const tabs = [{ id: 'log', href: '/sent', name: 'Sending log' }, { id: 'suppressions', href: '/sent/suppressions', name: 'Suppression list' }, { id: 'reputation', href: '/sent/reputation', name: 'Reputation' }, { id: 'templates', href: '/sent/templates', name: 'Templates' }, { id: 'lookup', href: '/sent/lookup', name: 'Message-ID lookup' }]

export function SentTabs({ current }: { current: 'log' | 'suppressions' | 'reputation' | 'templates' | 'lookup' }) {
  return <Tabs label="Sent" tabs={tabs} current={current} />
}
