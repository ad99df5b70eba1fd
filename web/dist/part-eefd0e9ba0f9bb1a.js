import{j as o}from"./part-c499b6d61494431b.js";var e=o(null);export{e as a};
