import{j as o}from"./part-98071e0f4b9e0646.js";var e=o(null);export{e as a};
