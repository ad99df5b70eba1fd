import uPlot from 'uplot'
import { useEffect, useRef } from 'preact/hooks'
import { theme } from '../theme'
import { locale } from '../words'

export interface Series { name: string; values: (number | null)[]; color: string; fill?: boolean }

interface ChartProps {
  days: string[]
  series: Series[]
  height?: number
  label: string
  /** What it says to those who do not see it, where the sums of its values say nothing. */
  summary?: string
}

/** A line chart over days. color is the name of a colour of the theme, such as --accent. */
export function Chart({ days, series, height = 200, label, summary }: ChartProps) {
  const box = useRef<HTMLDivElement>(null)
  const key = JSON.stringify([days, series])
  const look = theme.value
  useEffect(() => {
    const element = box.current!
    const style = getComputedStyle(document.documentElement)
    // A canvas knows no light-dark(): the browser works the colour out for an element.
    const probe = element.appendChild(document.createElement('i'))
    probe.style.transitionProperty = 'none' // a transition, be it of a millisecond, would begin with the colour before
    const color = (name: string) => {
      probe.style.color = style.getPropertyValue(name)
      return getComputedStyle(probe).color
    }
    const plot = new uPlot(options(element.clientWidth, height, series, color), [days.map((d) => Date.parse(d + 'T12:00:00') / 1000), ...series.map((s, i) => (i === 0 ? s.values : drawn(s.values)))], element)
    probe.remove()
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }))
    watch.observe(element)
    return () => {
      watch.disconnect()
      plot.destroy()
    }
  }, [key, height, look])
  return (
    <figure class="stack-tight">
      <div class="chart" ref={box} aria-hidden="true" />
      <figcaption class="visually-hidden">{summary ?? `${label}: ${series.map((s) => `${s.name} ${s.values.reduce<number>((sum, v) => sum + (v ?? 0), 0)}`).join(', ')}`}</figcaption>
    </figure>
  )
}

/** The values without stretches of nothing: their lines at zero would hide that of the first series. */
function drawn(values: (number | null)[]) {
  return values.map((v, i) => (v || values[i - 1] || values[i + 1] ? v : null))
}

function options(width: number, height: number, series: Series[], color: (name: string) => string): uPlot.Options {
  const axis = { stroke: color('--muted'), grid: { stroke: color('--line'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' }
  return {
    width, height,
    cursor: { points: { size: 7 }, drag: { x: false, y: false } },
    legend: { show: series.length > 1 },
    scales: { y: { range: (_, __, max) => [0, Math.max(4, max * 1.1)] } },
    axes: [{ ...axis, values: (_, at) => at.map((t) => new Date(t * 1000).toLocaleDateString(locale.value, { day: 'numeric', month: 'short' })), space: 70, size: 30 },
      { ...axis, size: 52, values: (_, at) => at.map((v) => (Number.isInteger(v) ? v.toLocaleString(locale.value) : '')) }],
    series: [{ value: (_, t) => (t ? new Date(t * 1000).toLocaleDateString(locale.value, { dateStyle: 'medium' }) : '') },
      ...series.map((s): uPlot.Series => ({ label: s.name, value: (_, __, ___, at) => (at === null || at === undefined ? '' : s.values[at]?.toLocaleString(locale.value) ?? ''), stroke: color(s.color), width: 2, points: { show: false }, fill: s.fill ? color(s.color + '-soft') : undefined }))],
  }
}
